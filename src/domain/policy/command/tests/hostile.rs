//! Lines made to be misread: nothing panics, nothing takes long, and what is forbidden is not let through.

use proptest::prelude::*;

use super::{
    super::{MAX_LENGTH, Sight, is_plain, split},
    *,
};

fn is_unread(line: &str) -> bool {
    matches!(split(line)[0].sight, Sight::Unread(_))
}

#[test]
fn a_line_that_is_too_long_or_too_deep_is_not_read() {
    assert!(is_unread(&"a".repeat(MAX_LENGTH + 1)));
    assert!(is_unread(&"a;".repeat(2_000)));
    let deep = [
        ("(", "a", ")"),
        ("((", "1", "))"),
        ("$(", "a", ")"),
        ("echo $((", "1", "))"),
        ("{ ", "a", ";}"),
        ("`", "a", "`"),
        ("if ", "a", ";then b;fi"),
        ("echo ${x:-", "a", "}"),
        ("echo \"$(", "a", ")\""),
        ("f() ", "{ a; }", ""),
        ("<(", "a", ")"),
        ("x=(", "a", ")"),
        ("[[ ( ", "a", ") ]]"),
        ("case a in a) ", "b", ";; esac"),
        ("! ", "a", ""),
        ("env ", "a", ""),
        ("sh -c ", "a", ""),
        ("a <<E\n$(", "b", ")\nE\n"),
        ("while ", "a", ";do b;done"),
        ("coproc ", "a", ""),
        ("xargs ", "a", ""),
        ("eval ", "a", ""),
        ("find . -exec ", "a", ";"),
    ];
    // Read in one level: parentheses of arithmetic and of tests, pairs of backquotes, `sh -c sh`,
    // a command of find that does not end.
    let flat = ["! ", "[[ ( ", "(", "((", "`", "sh -c ", "find . -exec "];
    for (open, middle, close) in deep {
        for (opened, closed) in [(1_000, 1_000), (1_000, 0), (20_000, 0)] {
            let line = format!("{}{middle}{}", open.repeat(opened), close.repeat(closed));
            let line = line.get(..MAX_LENGTH).unwrap_or(&line);
            assert!(is_unread(line) || flat.contains(&open), "{open}");
        }
    }
}

#[test]
fn what_is_handed_to_many_commands_is_bounded() {
    assert!(is_unread(&format!("find . {} {}", "-exec a ';' ".repeat(900), ">a ".repeat(15_000))));
    assert!(is_unread(&format!("{}a", "x=1 ".repeat(100))));
    assert!(is_unread(&format!("{}=1 a", "x".repeat(1_000))));
    let line = format!("env {}'cat a'", "-S ".repeat(20_000));
    assert!(matches!(split(&line)[0].sight, Sight::Hidden(_)));
}

#[test]
fn a_line_that_sh_reads_in_another_way_is_not_plain() {
    for line in ["cat a | grep b > c", "f() { cat a; }; f", "for x in 1 2; do echo \"$x\"; done"] {
        assert!(is_plain(line), "{line}");
    }
    for line in
        ["echo $'a'", "cat a &> b", "[[ a ]]", "a=(1)", "x+=1", "coproc cat a", "function f { cat a; }"]
    {
        assert!(!is_plain(line), "{line}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splitting_any_text_ends_and_says_something(line in any::<String>()) {
        prop_assert!(!split(&line).is_empty());
    }

    #[test]
    fn splitting_pieces_of_shell_in_any_order_ends(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        prop_assert!(!split(&pieces.concat()).is_empty());
    }

    #[test]
    fn what_is_forbidden_is_not_let_through_behind_anything(
        pieces in prop::collection::vec(prop::sample::select(HARMLESS), 1..4),
        separator in prop::sample::select(SEPARATORS),
        around in prop::sample::select(AROUND),
    ) {
        let forbidden = around.replace('@', "rm -rf d");
        let line = format!("{}{separator}{forbidden}", pieces.join("; "));
        for policy in [LISTED, OPEN] {
            let (verdict, why) = judge(policy, &line);
            prop_assert!(verdict != Verdict::Allow, "{line}: {why}");
        }
    }
}

const PIECES: &[&str] = &[
    "rm d",
    " ",
    "\n",
    ";",
    "&",
    "|",
    "&&",
    "||",
    "(",
    ")",
    "{ ",
    "}",
    "'",
    "\"",
    "`",
    "\\",
    "$(",
    "${",
    "$((",
    "))",
    "$",
    "x=",
    "<<E\n",
    "E\n",
    "<<-'E'\n",
    "<",
    ">",
    ">&",
    "2>",
    "if ",
    "then ",
    "fi",
    "case ",
    " in ",
    "esac",
    ";;",
    "for ",
    "do ",
    "done",
    "[[ ",
    " ]]",
    "#",
    "*",
    "~",
    "!",
    "f() ",
    "function ",
    "time ",
    "coproc ",
    "env ",
    "sh -c ",
    "xargs ",
    "\\\n",
    "é",
    "$'",
    "[",
    "]",
    "=~",
];
const HARMLESS: &[&str] = &[
    "git status",
    "cat a",
    "echo 'x y'",
    "echo \"$x\"",
    "true",
    "cat <<E\nbody\nE\n",
    "echo $(cat a)",
    "x=1",
    "{ cat a; }",
    "(cat a)",
    "if true; then cat a; fi",
    "for i in 1 2; do echo $i; done",
    "case $x in a) cat a;; esac",
    "f() { cat a; }",
    "[[ -f a ]]",
    "echo a\\ b",
    "cat a | grep b",
    "! true",
    "echo $'a\\'b'",
];
const SEPARATORS: &[&str] = &[
    "\n",
    "; ",
    ";",
    " && ",
    " || ",
    " | ",
    " & ",
    "\n\n",
    " |& ",
    "&",
    "|",
    "&&",
    "\n# comment\n",
    " \\\n; ",
];
const AROUND: &[&str] = &[
    "@",
    "( @ )",
    "{ @; }",
    "$(@)",
    "echo $(@)",
    "echo \"$(@)\"",
    "echo `@`",
    "cat <(@)",
    "x=$(@)",
    "X=1 @",
    "env @",
    "timeout 5 @",
    "nohup @ &",
    "sh -c '@'",
    "bash -lc \"@\"",
    "eval '@'",
    "if @; then true; fi",
    "while @; do true; done",
    "f() { @; }",
    "! @",
    "time @",
    "@ > /dev/null 2>&1",
    "2>/dev/null @",
    "echo ${x:-$(@)}",
    "echo \"${x:-`@`}\"",
    "cat <<E\n$(@)\nE\n",
    "[[ -n $(@) ]]",
    "case $(@) in a) ;; esac",
    "for i in $(@); do true; done",
    "echo a | xargs @",
    "find . -exec @ ';'",
    "a=(1 $(@))",
    "command @",
    "exec @",
    "coproc @",
    "trap '@' EXIT",
    "echo $(( $(@) ))",
    "/bin/@",
    "./@",
    "sudo @",
    "busybox @",
    "watch @",
    "echo {a,$(@)}",
    "cat < <(@)",
    "echo > >(@)",
    "function f { @; }",
];

#[test]
fn random_bytes_and_cut_lines_are_read_or_refused() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..3_000 {
        let bytes: Vec<u8> = (0..next(200)).map(|_| u8::try_from(next(256)).unwrap()).collect();
        assert!(!split(&String::from_utf8_lossy(&bytes)).is_empty());
    }
    for around in AROUND {
        for (end, _) in around.char_indices() {
            assert!(!split(&around[..end]).is_empty());
            assert!(!split(&around[end..]).is_empty());
        }
    }
}
