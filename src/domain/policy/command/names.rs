//! Names that mean something to bash.

/// Why nothing can be said of an expression.
pub(super) const EVALUATES: &str = "bash evaluates what variables hold";

/// Builtins whose arguments may be assignments, of lists too.
pub(super) const DECLARING: [&str; 5] = ["declare", "typeset", "local", "export", "readonly"];

/// Variables that change which programs run, have programs run others, or are no plain variables.
const ALTERING: [&str; 65] = [
    "PATH",
    "IFS",
    "ENV",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "PS0",
    "PS1",
    "PS4",
    "PROMPT_COMMAND",
    "CDPATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "GLOBIGNORE",
    "EXECIGNORE",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAKEFLAGS",
    "CC",
    "CXX",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "CARGO",
    "GOFLAGS",
    "TERMINFO",
    // What is given to these is evaluated, or makes bash read otherwise.
    "DIRSTACK",
    "GROUPS",
    "PIPESTATUS",
    "FUNCNAME",
    "COPROC",
    "MAPFILE",
    "HISTCMD",
    "OPTIND",
    "RANDOM",
    "SRANDOM",
    "SECONDS",
    "LINENO",
    "BASHPID",
    "EPOCHSECONDS",
    "EPOCHREALTIME",
    "POSIXLY_CORRECT",
    "INPUTRC",
    "MAILPATH",
    "OLDPWD",
    "PWD",
];
const ALTERING_PREFIXES: [&str; 7] =
    ["LD_", "DYLD_", "BASH_", "GIT_", "CARGO_", "npm_config_", "NPM_CONFIG_"];
/// Of those, the ones that only say who and when.
const HARMLESS_GIT: [&str; 2] = ["GIT_AUTHOR_", "GIT_COMMITTER_"];

/// Variables that only change how output looks or how much of it there is.
const HARMLESS: [&str; 13] = [
    "LANG",
    "LANGUAGE",
    "TZ",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "CI",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "PYTHONUNBUFFERED",
];

/// Words that bash or this reading gives a meaning which a function would take away.
const SPECIAL: [&str; 44] = [
    ".",
    ":",
    "break",
    "continue",
    "eval",
    "exec",
    "exit",
    "export",
    "readonly",
    "return",
    "set",
    "shift",
    "source",
    "times",
    "trap",
    "unset",
    "alias",
    "builtin",
    "command",
    "declare",
    "enable",
    "hash",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "shopt",
    "test",
    "typeset",
    "unalias",
    "wait",
    "[",
    "bind",
    "complete",
    "compgen",
    "getopts",
    "fc",
    "history",
    "time",
    "if",
    "then",
    "do",
];

/// How long the variable's name is that a text begins with.
pub(super) fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}

/// Whether a variable changes what runs.
pub(super) fn alters(name: &str) -> bool {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    ALTERING.contains(&name) || starts(&ALTERING_PREFIXES) && !starts(&HARMLESS_GIT)
}

pub(super) fn why_it_alters(name: &str) -> String {
    format!("{name} changes what runs")
}

/// Whether a variable, handed to a command, leaves what the command does as it is.
pub(super) fn is_harmless(name: &str) -> bool {
    HARMLESS.contains(&name) || name.starts_with("LC_")
}

/// Whether a variable that is only set stays in the shell: programs look at upper-case ones, and at proxies.
pub(super) fn stays_in_the_shell(name: &str) -> bool {
    is_harmless(name)
        || name.contains(|c: char| c.is_ascii_lowercase()) && !alters(name) && !name.ends_with("_proxy")
}

pub(super) fn means_more(name: &str) -> bool {
    SPECIAL.contains(&name)
}
