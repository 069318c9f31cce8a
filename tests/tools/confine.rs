//! What the kernel keeps commands from. Where it cannot, there is nothing to see here.

use std::{
    fs,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use herder::{
    domain::call::Failure,
    tool::{
        Output,
        command::{CommandOptions, CommandTool, Reach},
        launcher::{Bounds, FileBounds},
        process::confine::{Files, Network, support},
    },
};
use serde_json::json;

use crate::harness::Scene;

/// A scene whose commands are kept to their workspace, with a folder `outside` that has a file.
fn confined() -> Option<Scene> {
    let mut scene = Scene::new();
    scene.launcher.bounds = Bounds { files: FileBounds::Workspace, ..Bounds::default() };
    fs::create_dir(scene.path("outside")).unwrap();
    fs::write(scene.path("outside/kept"), "kept\n").unwrap();
    (support().files == Files::All).then_some(scene)
}

fn assert_outside_is_untouched(scene: &Scene) {
    let names: Vec<_> =
        fs::read_dir(scene.path("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!(fs::read_to_string(scene.path("outside/kept")).unwrap(), "kept\n");
}

#[tokio::test]
async fn a_command_writes_in_its_workspace_and_its_tmpdir() {
    let Some(scene) = confined() else { return };
    let script = "mkdir -p a/b && echo 1 > a/b/file && mv a/b/file c && ln c d && ln -s c e && truncate -s 1 c && \
                  mkfifo pipe && rm pipe && echo 2 > $TMPDIR/file && mv $TMPDIR/file f && cat c f; echo > /dev/null";
    assert_eq!(scene.bash(json!({"command": script})).await, Output::ok("12\n"));
}

#[tokio::test]
async fn a_command_reads_everywhere_and_changes_nothing_elsewhere() {
    let Some(scene) = confined() else { return };
    assert_eq!(scene.bash(json!({"command": "cat ../outside/kept"})).await, Output::ok("kept\n"));
    for script in [
        "echo changed > ../outside/kept",
        "echo changed >> ../outside/kept",
        "echo new > ../outside/new",
        "mkdir ../outside/new",
        "rm ../outside/kept",
        "touch mine; mv mine ../outside/",
        "mv ../outside/kept taken",
        "ln ../outside/kept linked && echo changed > linked",
        "touch own; ln own ../outside/linked",
        "ln -s ../outside/kept link; echo changed > link",
        "ln -s ../outside/new dangling; echo new > dangling",
        "ln -s ../outside out; echo new > out/new",
        "python3 -c 'import os; os.truncate(\"../outside/kept\", 0)'",
        "python3 -c 'import os; os.mknod(\"device\", 0o600 | 0o020000, os.makedev(1, 5))'",
        "setsid -w sh -c 'echo changed > ../outside/kept'",
        "unshare -r sh -c 'echo changed > ../outside/kept'",
        "echo new > ../new",
        "echo core > /proc/sys/kernel/core_pattern",
    ] {
        let output = scene.bash(json!({"command": script})).await;
        assert_eq!(output.failure, Some(Failure::Failed), "{script}: {}", output.text);
        assert_outside_is_untouched(&scene);
    }
    assert!(!scene.path("new").exists() && !scene.path("ws/device").exists());
}

#[tokio::test]
async fn what_else_may_be_written_to_is_named_and_need_not_be_there() {
    let Some(mut scene) = confined() else { return };
    scene.launcher.bounds.write_roots = vec![scene.path("missing"), scene.path("outside")];
    let output = scene.bash(json!({"command": "echo changed > ../outside/kept"})).await;
    assert_eq!(output, Output::ok("[no output]"));
    assert_eq!(fs::read_to_string(scene.path("outside/kept")).unwrap(), "changed\n");
    assert!(scene.bash(json!({"command": "echo new > ../new"})).await.failure.is_some());
}

#[tokio::test]
async fn a_tool_that_only_reads_cannot_do_anything_else() {
    let Some(mut scene) = confined() else { return };
    scene.launcher.bounds.write_roots = vec![scene.path("outside")];
    fs::write(scene.path("ws/file"), "as it was\n").unwrap();
    let script =
        "echo changed > file; echo changed > ../outside/kept; echo 1 > $TMPDIR/file; cat file $TMPDIR/file";
    let options = CommandOptions {
        name: "lookup".into(),
        description: "Looks something up.".into(),
        schema: Arc::new(json!({"type": "object"})),
        argv: ["bash", "-c", script].map(Into::into).to_vec(),
        reach: Reach::ReadOnly,
        network: None,
        timeout: None,
    };
    let tool = Arc::new(CommandTool::new(options, Arc::new(scene.launcher.clone())).unwrap());
    let output = scene.run(tool, json!({})).await;
    assert!(output.text.ends_with("as it was\n1\n"), "{}", output.text);
    assert_eq!(output.text.matches("Permission denied").count(), 2, "{}", output.text);
    assert_outside_is_untouched(&scene);
}

#[tokio::test]
async fn a_command_can_neither_signal_nor_look_into_a_process_that_is_not_its_own() {
    let Some(scene) = confined() else { return };
    let mut other = Witness(
        Command::new("sleep").arg("600").env("API_KEY", "secret").stdin(Stdio::null()).spawn().unwrap(),
    );
    let pid = other.0.id();
    for script in [format!("kill -KILL {pid}"), format!("kill -0 {pid}"), format!("cat /proc/{pid}/environ")]
    {
        let output = scene.bash(json!({"command": script})).await;
        assert_eq!(output.failure, Some(Failure::Failed), "{script}: {}", output.text);
        assert!(!output.text.contains("secret"));
    }
    assert_eq!(other.0.try_wait().unwrap(), None);
    let own =
        scene.bash(json!({"command": "sleep 600 & kill $! && wait $!; test $? = 143 && echo ended"})).await;
    assert_eq!(own, Output::ok("ended\n"));
}

#[tokio::test]
async fn what_is_confined_is_still_ended_with_all_that_it_started() {
    let Some(scene) = confined() else { return };
    for command in ["sleep 60 & echo started", "setsid sleep 60 & echo started"] {
        let output = scene.bash(json!({"command": command})).await;
        assert!(output.text.ends_with(" ended]\n"), "{command}: {}", output.text);
    }
    let arguments = json!({"command": "trap '' TERM; echo begun; echo > up; while :; do sleep 1; done"});
    let (output, ()) = tokio::join!(scene.bash(arguments), async {
        scene.until_file("up").await;
        scene.cancel.cancel();
    });
    assert_eq!(output, Output::failed(Failure::Cancelled, "begun\n[cancelled]"));
}

#[tokio::test]
async fn usual_programs_work_while_they_are_confined() {
    let Some(scene) = confined() else { return };
    for script in [
        "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git status -s",
        "seq 100000 | sort -R -S 64k | sort -n -S 64k | tail -1 | grep -qx 100000",
        "file=$(mktemp) && folder=$(mktemp -d) && echo 1 > $file && cp $file $folder/",
        "cat <<END > here\ntext\nEND\ndiff <(cat here) <(echo text) && echo text > >(cat > there); echo err > /dev/stderr",
        "python3 -c 'import multiprocessing as m; m.Lock(); import tempfile; tempfile.TemporaryFile()'",
    ] {
        let output = scene.bash(json!({"command": script})).await;
        assert_eq!(output.failure, None, "{script}: {}", output.text);
    }
}

#[tokio::test]
async fn without_network_there_are_unix_sockets_alone() {
    if !support().network {
        return;
    }
    let mut scene = Scene::new();
    scene.launcher.bounds.network = Network::Deny;
    let script = r#"
import ctypes, socket
def tried(what, *kind):
    try:
        socket.socket(*kind)
        print(what, "yes")
    except PermissionError:
        print(what, "no")
tried("tcp", socket.AF_INET, socket.SOCK_STREAM)
tried("tcp6", socket.AF_INET6, socket.SOCK_STREAM)
tried("udp", socket.AF_INET, socket.SOCK_DGRAM)
tried("raw", socket.AF_INET, socket.SOCK_RAW, 1)
tried("packet", socket.AF_PACKET, socket.SOCK_RAW)
tried("netlink", socket.AF_NETLINK, socket.SOCK_RAW)
tried("vsock", socket.AF_VSOCK, socket.SOCK_STREAM)
tried("unix", socket.AF_UNIX, socket.SOCK_STREAM)
socket.socketpair()
libc = ctypes.CDLL(None, use_errno=True)
print("ring", libc.syscall(425, 8, ctypes.create_string_buffer(120)), ctypes.get_errno())
"#;
    fs::write(scene.path("ws/try.py"), script).unwrap();
    let output = scene.bash(json!({"command": "python3 try.py"})).await;
    let expected = "tcp no\ntcp6 no\nudp no\nraw no\npacket no\nnetlink no\nvsock no\nunix yes\nring -1 13\n";
    assert_eq!(output, Output::ok(expected));
}

#[tokio::test]
async fn a_command_tool_says_for_itself_whether_it_has_the_network() {
    if !support().network {
        return;
    }
    let scene = Scene::new();
    let script = "import socket; socket.socket(socket.AF_INET)";
    for (network, failure) in [(Some(Network::Deny), Some(Failure::Failed)), (None, None)] {
        let options = CommandOptions {
            name: "lookup".into(),
            description: "Looks something up.".into(),
            schema: Arc::new(json!({"type": "object"})),
            argv: ["python3", "-c", script].map(Into::into).to_vec(),
            reach: Reach::Anything,
            network,
            timeout: None,
        };
        let tool = Arc::new(CommandTool::new(options, Arc::new(scene.launcher.clone())).unwrap());
        assert_eq!(scene.run(tool, json!({})).await.failure, failure);
    }
}

#[tokio::test]
async fn no_command_gains_rights_even_if_it_is_not_confined() {
    let scene = Scene::new();
    let output = scene.bash(json!({"command": "grep NoNewPrivs /proc/self/status"})).await;
    assert_eq!(output, Output::ok("NoNewPrivs:\t1\n"));
}

#[tokio::test]
async fn root_loses_the_rights_that_lead_past_the_confinement() {
    let Some(scene) = confined() else { return };
    let output = scene.bash(json!({"command": "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status"})).await;
    const SYS_ADMIN_PTRACE_AND_MODULE: u64 = 1 << 21 | 1 << 19 | 1 << 16;
    for line in output.text.lines() {
        let set = u64::from_str_radix(line.split_once('\t').unwrap().1, 16).unwrap();
        assert_eq!(set & SYS_ADMIN_PTRACE_AND_MODULE, 0, "{line}");
    }
}

#[tokio::test]
async fn where_confinement_is_required_and_missing_nothing_is_run() {
    let mut scene = Scene::new();
    scene.launcher.bounds.files = FileBounds::Refused;
    let output = scene.bash(json!({"command": "touch made"})).await;
    let why = "commands are run only when they are confined to their workspace, and this kernel has no Landlock; nothing \
               was run";
    assert_eq!(output, Output::failed(Failure::Failed, why));
    assert!(!scene.path("ws/made").exists());
}

#[test]
fn a_model_is_told_of_the_bounds_and_only_if_there_are_some() {
    let mut scene = Scene::new();
    let told = |scene: &Scene| scene.tool("bash").spec().description.to_string();
    let open = told(&scene);
    scene.launcher.bounds =
        Bounds { files: FileBounds::Workspace, write_roots: vec!["/cache".into()], network: Network::Deny };
    assert_eq!(
        told(&scene).strip_prefix(&open),
        Some(
            " Files can be changed only in the workspace and in $TMPDIR (not in /tmp itself), /cache; elsewhere permission \
             is denied, so git cannot commit in a worktree. There is no network."
        )
    );
}

/// A process that does not outlive the test.
struct Witness(Child);

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
