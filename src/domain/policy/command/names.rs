//! Names that mean something to bash, or to programs that a command may start.

use super::{Word, git};

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

/// Programs that run code which is among their arguments or in a file.
const INTERPRETERS: [&str; 45] = [
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "deno",
    "bun",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "expect",
    "osascript",
    "pwsh",
    "fish",
    "csh",
    "tcsh",
    "nu",
    "elvish",
    "emacs",
    "gdb",
    "irb",
    "ghci",
    "sed",
    "ed",
    "ex",
    "vi",
    "vim",
    "nvim",
    "view",
    "m4",
    "sqlite3",
    "php8",
    "lua5.4",
    "goawk",
    "original-awk",
    "psql",
    "mysql",
    "octave",
    "Rscript",
    "R",
    "julia",
];
/// Programs that run another command, and are not looked through.
const RUNNERS: [&str; 57] = [
    "su",
    "runuser",
    "pkexec",
    "ssh",
    "parallel",
    "flock",
    "strace",
    "ltrace",
    "script",
    "unshare",
    "prlimit",
    "setarch",
    "linux32",
    "linux64",
    "i386",
    "x86_64",
    "uname26",
    "choom",
    "ssh-agent",
    "nsenter",
    "setpriv",
    "systemd-run",
    "chrt",
    "taskset",
    "firejail",
    "bwrap",
    "proot",
    "fakeroot",
    "xvfb-run",
    "dbus-run-session",
    "valgrind",
    "perf",
    "rlwrap",
    "unbuffer",
    "at",
    "batch",
    "crontab",
    "start-stop-daemon",
    "entr",
    "docker",
    "make",
    "gmake",
    "ninja",
    "just",
    "npx",
    "npm",
    "yarn",
    "pnpm",
    "bunx",
    "uvx",
    "tmux",
    "screen",
    "podman",
    "git-shell",
    "less",
    "more",
    "man",
];
/// Options with which programs run another. Of a long one, a beginning is enough.
const RUNNING_OPTIONS: [(&str, &[&str]); 9] = [
    (
        "tar",
        &[
            "-I",
            "-F",
            "--checkpoint-action",
            "--to-command",
            "--use-compress-program",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
            "--rmt-command",
        ],
    ),
    ("split", &["--filter"]),
    ("rg", &["--pre", "--hostname-bin"]),
    ("fd", &["-x", "-X", "--exec", "--exec-batch"]),
    ("fdfind", &["-x", "-X", "--exec", "--exec-batch"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("zip", &["-TT", "--unzip-command"]),
    ("sort", &["--compress-program"]),
    (
        "git",
        &[
            "-c",
            "-x",
            "-O",
            "--config-env",
            "--exec",
            "--exec-path",
            "--extcmd",
            "--open-files-in-pager",
            "--upload-pack",
            "--receive-pack",
            "--ext-diff",
            "--textconv",
        ],
    ),
];
/// Words of git behind which it runs what they say.
const GIT_RUNS: [&str; 5] = ["run", "foreach", "filter-branch", "mergetool", "difftool"];

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

/// Why a program runs more than its words say, if it does.
pub(super) fn runs_more(program: &str, arguments: &[Word]) -> Option<String> {
    let starts = |names: &[&str]| names.iter().any(|name| program.starts_with(name));
    if starts(&["python", "pypy", "ruby", "perl", "php", "lua"]) || INTERPRETERS.contains(&program) {
        return Some(format!("{program} runs code that is not looked into"));
    }
    let is_loader = starts(&["ld.so", "ld-linux", "ld-musl", "ld64.so"]);
    let is_running = RUNNERS.contains(&program) || is_loader || is_told_to_run(program, arguments);
    let is_set_to_run = program == "git" && git::runs_what_is_set(arguments);
    (is_running || is_set_to_run).then(|| format!("{program} runs commands that are not looked into"))
}

fn is_told_to_run(program: &str, arguments: &[Word]) -> bool {
    let Some((_, options)) = RUNNING_OPTIONS.iter().find(|(name, _)| *name == program) else { return false };
    let is_one = |value: &str| {
        let (name, _) = value.split_once('=').unwrap_or((value, ""));
        let may_be = |option: &&&str| match option.strip_prefix("--") {
            Some(_) => name.len() > 3 && option.starts_with(name),
            None => {
                !name.starts_with("--")
                    && option.strip_prefix('-').is_some_and(|letters| {
                        name.strip_prefix('-').is_some_and(|given| given.contains(letters))
                    })
            }
        };
        options.iter().find(may_be).is_some()
    };
    let is_git_running = |value: &str| program == "git" && GIT_RUNS.contains(&value);
    arguments
        .iter()
        .filter_map(|word| word.value.as_deref())
        .any(|value| is_one(value) || is_git_running(value))
}
