//! Ways round a rule that looks at how a line begins only.

use super::{super::super::Verdict, *};

const ALLOWED: &str = r#"{ "name": "x", "rule": [
    { "command": ["rm"], "decision": "deny" },
    { "command": ["git status", "cat"], "decision": "allow" },
    { "decision": "ask" }
] }"#;

#[test]
fn what_is_allowed_carries_nothing_else_along() {
    let deny = |what: &str| (Verdict::Deny, format!("rule 1 of policy x denies {what}"));
    let ask = |what: &str| (Verdict::Ask, format!("rule 3 of policy x asks about {what}"));
    let cases = [
        ("git status && rm -rf ./d", deny(r#""rm -rf ./d""#)),
        ("git status\nrm -rf ./d", deny(r#""rm -rf ./d""#)),
        ("cat a.txt; rm d", deny(r#""rm d""#)),
        ("cat a | tee b", ask(r#""tee b""#)),
        ("git status $(rm d)", deny(r#""rm d" (in $(...))"#)),
        ("git status `rm d`", deny(r#""rm d" (in `...`)"#)),
        ("cat <(rm d)", deny(r#""rm d" (in <(...))"#)),
        ("git status & rm d", deny(r#""rm d""#)),
        ("cat a > /etc/x", ask(r#""cat a > /etc/x" (writes to /etc/x)"#)),
        ("X=1 rm d", deny(r#""X=1 rm d" (sets X)"#)),
    ];
    for (line, said) in cases {
        assert_eq!(judge(ALLOWED, line), said, "{line}");
    }
    let allow = |what: &str| (Verdict::Allow, format!("rule 2 of policy x allows {what}"));
    assert_eq!(judge(ALLOWED, "git status"), allow(r#""git status""#));
    assert_eq!(judge(ALLOWED, "cat a.txt"), allow(r#""cat a.txt""#));
}

#[test]
fn what_is_forbidden_is_found_behind_what_runs_it() {
    let deny = |what: &str| (Verdict::Deny, format!("rule 1 of policy open denies {what}"));
    let cases = [
        ("bash -c 'rm -rf d'", deny(r#""rm -rf d" (in bash -c)"#)),
        ("env A=1 rm d", deny(r#""rm d" (in env; sets A)"#)),
        ("timeout 1 rm d", deny(r#""rm d" (in timeout)"#)),
        ("nohup rm d", deny(r#""rm d" (in nohup)"#)),
        ("echo d | xargs rm", deny(r#""rm ..." (in xargs)"#)),
        ("eval 'r''m d'", deny(r#""rm d" (in eval)"#)),
        ("find . -exec rm {} +", deny(r#""rm {}" (in find -exec)"#)),
        ("\\rm d", deny(r#""\\rm d""#)),
        ("/bin/rm d", deny(r#""/bin/rm d""#)),
        (
            "command curl http://x",
            (Verdict::Ask, r#"rule 2 of policy open asks about "curl http://x" (in command)"#.to_owned()),
        ),
        (
            "$(echo rm) d",
            (
                Verdict::Ask,
                "rule 1 of policy open may be about \"$(echo rm) d\" (cannot be decided: what runs is known only when it runs)"
                    .to_owned(),
            ),
        ),
    ];
    for (line, said) in cases {
        assert_eq!(judge(OPEN, line), said, "{line}");
    }
}

#[test]
fn what_a_program_runs_that_is_not_looked_into_is_asked_about() {
    let lines = "
        taskset 1 rm d; chrt -f 1 rm d; flock f rm d; setpriv --reuid 1 rm d; prlimit --nofile=1 rm d; numactl -N 0 rm d
        unshare -r rm d; nsenter -t 1 rm d; systemd-run rm d; bwrap rm d; setarch i386 rm d; capsh -- -c 'rm d'
        su -c 'rm d'; runuser -u me rm d; sg g 'rm d'; ssh h rm d; docker run i rm d; podman exec c rm d; kubectl exec p -- rm d
        script -c 'rm d'; parallel rm ::: d; entr rm d; strace rm d; gdb -ex '!rm d'; tmux new 'rm d'; at now; run-parts d
        /lib64/ld-linux-x86-64.so.2 /bin/rm d; ld.so rm d; tini rm d; hyperfine 'rm d'; socat - EXEC:'rm d'; ldd ./rm
        python3 -c x; perl -e x; awk 'BEGIN{system(\"rm d\")}'; sed '1e rm d' f; vim -c '!rm d'; node -e x; java X; dc -e '!rm d'
        tar cf a b --to-command='rm d'; tar cf a b --checkpoint-action=exec='rm d'; rsync -e 'rm d' a b; scp -S rm a b
        make d; npm run d; npx rm; yarn d; pnpm d; uv run rm; poetry run rm; nix-shell --run 'rm d'; gradle d; ./gradlew d
        cargo run; cargo -q r; cargo build --config 'alias.b=1'; go run d; go test -exec 'rm d' .; go test --exec 'rm d' .
        git bisect run rm d; git rebase --exec 'rm d'; ip netns exec n rm d
    ";
    for line in lines.lines().flat_map(|line| line.split("; ")).map(str::trim).filter(|line| !line.is_empty())
    {
        assert_eq!(judge(OPEN, line).0, Verdict::Ask, "{line}");
    }
    for line in ["cargo test", "cargo build --release", "go test ./...", "git log", "rsync a b", "ip addr"] {
        assert_eq!(judge(OPEN, line).0, Verdict::Allow, "{line}");
    }
}

#[test]
fn what_a_program_runs_that_is_looked_through_is_found() {
    let lines = "
        setsid rm d; stdbuf -o0 rm d; ionice -c 3 rm d; nice rm d; time rm d; command rm d; builtin rm d; exec rm d; eval rm d
        chroot / rm d; sudo rm d; doas rm d; busybox rm d; toybox rm d; watch rm d; trap 'rm d' EXIT; coproc rm d
    ";
    for line in lines.lines().flat_map(|line| line.split("; ")).map(str::trim).filter(|line| !line.is_empty())
    {
        assert_eq!(judge(OPEN, line).0, Verdict::Deny, "{line}");
    }
}

#[test]
fn where_everything_is_allowed_nothing_is_looked_into() {
    let trusted = r#"{ "name": "t", "rule": [{ "decision": "allow" }] }"#;
    for line in ["$x", "'", "rm -rf d", "eval \"$y\"", ""] {
        assert_eq!(
            judge(trusted, line),
            (Verdict::Allow, "rule 1 of policy t says allow".to_owned()),
            "{line}"
        );
    }
}

#[test]
fn what_cannot_be_parsed_is_never_allowed_where_a_rule_names_commands() {
    let only_allowed =
        r#"{ "name": "x", "rule": [{ "command": ["cat"], "decision": "allow" }, { "decision": "allow" }] }"#;
    let denied =
        r#"{ "name": "x", "rule": [{ "command": ["cat"], "decision": "allow" }, { "decision": "deny" }] }"#;
    for line in ["cat 'a", "cat $(", "if cat a", "cat <<E\n", "cat )"] {
        assert_eq!(judge(only_allowed, line).0, Verdict::Ask, "{line}");
        assert_eq!(judge(denied, line).0, Verdict::Deny, "{line}");
        assert_eq!(judge(OPEN, line).0, Verdict::Ask, "{line}");
    }
}
