//! Programs that run more than their words say: code of their own kind, or other programs.
//!
//! What is named here is not looked into: a rule that asks or denies may be about what it runs. Those whose command can be
//! found among their arguments are looked through, and not named here.

use super::{Word, git};

/// Programs that run code which is among their arguments or in a file.
const INTERPRETERS: &str = "awk gawk mawk nawk goawk original-awk sed gsed ed ex red dc m4 vi vim gvim rvim view \
    vimdiff nvim emacs emacsclient node nodejs deno bun tsx ts-node expect osascript pwsh powershell fish csh tcsh \
    nu elvish xonsh gdb lldb rr bpftrace irb ghci ghc runghc runhaskell sqlite3 psql mysql mariadb octave gnuplot \
    Rscript R julia java jshell groovy scala kotlin clojure bb guile racket sbcl clisp ecl elixir iex erl escript \
    swipl swift zig tcc rust-script ipython";
/// Beginnings of names of interpreters that carry a version behind.
const INTERPRETER_FAMILIES: [&str; 7] = ["python", "pypy", "ruby", "perl", "php", "lua", "tclsh"];

/// Programs that run another command, and are not looked through.
const RUNNERS: &str = "su runuser pkexec sg newgrp gosu su-exec setpriv capsh machinectl run0 systemd-run \
    systemd-nspawn ssh sshpass ssh-agent autossh mosh pdsh dsh ansible salt vagrant kubectl oc crictl ctr nerdctl \
    docker docker-compose podman podman-compose buildah lxc lxc-attach lxc-execute toolbox distrobox flatpak \
    flatpak-spawn firejail bwrap proot fakeroot fakechroot schroot unshare nsenter cgexec chpst softlimit setlock \
    setuidgid envdir flock lockfile chrt taskset numactl prlimit setarch linux32 linux64 i386 x86_64 uname26 \
    eatmydata faketime catchsegv torsocks torify proxychains proxychains4 tini dumb-init catatonit s6-setuidgid \
    runsv start-stop-daemon daemon daemonize run-parts dbus-run-session dbus-launch xvfb-run xinit startx strace \
    ltrace valgrind perf heaptrack uftrace hyperfine parallel sem entr watchexec nodemon concurrently script rlwrap \
    unbuffer tmux screen byobu zellij abduco dtach at batch crontab socat nc ncat netcat make gmake bmake ninja \
    samu just task rake scons waf bazel buck gradle gradlew mvn mvnw ant sbt lein mix cmake ctest stack cabal \
    dotnet meson tox nox invoke fab npx npm yarn yarnpkg pnpm pnpx bunx corepack nvm volta fnm uv uvx pipx pipenv \
    poetry pdm hatch rye conda mamba micromamba pyenv rbenv nodenv asdf mise rtx direnv nix nix-shell nix-build \
    guix bundle bundler foreman honcho pm2 supervisord wine wine64 ldd less more most man info lesspipe git-shell \
    mail mutt lftp ftp chronic ifne pee vipe vidir zargs xe sudoedit visudo dlv delve qemu-x86_64 qemu-aarch64 \
    cargo-watch bacon choom";
/// Beginnings of names of what loads a program.
const LOADERS: [&str; 4] = ["ld-linux", "ld-musl", "ld.so", "ld64.so"];

/// Options with which programs run another. Of a long one, a beginning is enough.
const RUNNING_OPTIONS: [(&str, &[&str]); 16] = [
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
    ("cargo", &["--config", "-Z"]),
    ("go", &["-exec", "-toolexec", "-vettool", "--exec", "--toolexec", "--vettool"]),
    ("cpio", &["--rsh-command"]),
    ("install", &["--strip-program"]),
    ("tcpdump", &["-z"]),
    ("scp", &["-S"]),
    ("bat", &["--pager"]),
];
/// Words behind which programs run what they say.
const RUNNING_WORDS: [(&str, &[&str]); 4] = [
    ("git", &["run", "foreach", "filter-branch", "mergetool", "difftool"]),
    ("cargo", &["run", "r"]),
    ("go", &["run", "generate", "tool"]),
    ("ip", &["exec"]),
];

/// Why a program runs more than its words say, if it does.
pub(super) fn runs_more(program: &str, arguments: &[Word]) -> Option<String> {
    let is_in = |names: &str| names.split_ascii_whitespace().any(|name| name == program);
    let starts = |names: &[&str]| names.iter().any(|name| program.starts_with(name));
    if starts(&INTERPRETER_FAMILIES) || is_in(INTERPRETERS) {
        return Some(format!("{program} runs code that is not looked into"));
    }
    let is_running = is_in(RUNNERS) || starts(&LOADERS) || is_told_to_run(program, arguments);
    let is_set_to_run = program == "git" && git::runs_what_is_set(arguments);
    (is_running || is_set_to_run).then(|| format!("{program} runs commands that are not looked into"))
}

fn is_told_to_run(program: &str, arguments: &[Word]) -> bool {
    let of = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(name, _)| *name == program).map_or(&[][..], |(_, told)| told)
    };
    let (options, words) = (of(&RUNNING_OPTIONS), of(&RUNNING_WORDS));
    arguments
        .iter()
        .filter_map(|word| word.value.as_deref())
        .any(|value| words.contains(&value) || options.iter().any(|option| is_option(option, value)))
}

/// Whether a word gives an option: a beginning of a long one, or a word of letters with its own among them.
fn is_option(option: &str, word: &str) -> bool {
    let (name, _) = word.split_once('=').unwrap_or((word, ""));
    if option.starts_with("--") {
        return name.len() > 3 && option.starts_with(name);
    }
    !name.starts_with("--")
        && option
            .strip_prefix('-')
            .is_some_and(|letters| name.strip_prefix('-').is_some_and(|given| given.contains(letters)))
}
