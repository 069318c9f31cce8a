//! What is held of a command's output, what is written, and to whom it can be read.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use std::fs;

#[test]
fn a_short_output_is_shown_whole_and_makes_no_file() {
    let folder = TempDir::new().unwrap();
    let captured = capture(limits(&folder), &[b"one\n", b"two\n"]);
    assert_eq!(captured.text, "one\ntwo\n");
    assert_eq!((captured.bytes, captured.lines, captured.omitted), (8, 2, None));
    assert_eq!((captured.spill, spill(&folder).exists()), (None, false));
}

#[test]
fn a_long_output_lies_whole_in_a_private_file() {
    let folder = TempDir::new().unwrap();
    let lines: Vec<String> = (1..=20).map(|number| format!("line {number}\n")).collect();
    let chunks: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
    let captured = capture(limits(&folder), &chunks);

    let path = spill(&folder);
    let notice = format!("[14 lines (106 bytes) left out; the whole output is in {}]", path.display());
    assert_eq!(captured.text, format!("line 1\nline 2\nline 3\n{notice}\nline 18\nline 19\nline 20\n"));
    assert_eq!(captured.spill.as_ref(), Some(&path));
    assert_eq!(fs::read_to_string(&path).unwrap(), lines.concat());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn no_output_is_written_where_a_link_leads() {
    let (folder, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let root = folder.path().canonicalize().unwrap().join("spill");
    std::os::unix::fs::symlink(outside.path(), &root).unwrap();
    let limits = CaptureLimits { spill: Some(root.join("run/call.txt")), ..limits(&folder) };
    let captured = capture(limits, &[&b"x\n".repeat(10)]);
    assert!(captured.text.contains("could not be saved"), "{}", captured.text);
    assert_eq!((captured.spill, fs::read_dir(outside.path()).unwrap().count()), (None, 0));
}

#[test]
fn a_short_output_of_many_lines_is_saved_too() {
    let folder = TempDir::new().unwrap();
    let captured = capture(limits(&folder), &[&b"x\n".repeat(10)]);
    assert_eq!(captured.omitted, Some(Omitted { lines: 4, bytes: 8 }));
    assert_eq!(fs::read(spill(&folder)).unwrap(), b"x\n".repeat(10));
}

#[test]
fn a_shortened_line_is_saved_whole() {
    let folder = TempDir::new().unwrap();
    let shown = Limits { lines: 6, bytes: 60, line_chars: 8 };
    let captured = capture(CaptureLimits { shown, ..limits(&folder) }, &[b"123456789\n"]);
    let path = spill(&folder);
    let notice = format!("[lines shortened: 1; the whole output is in {}]", path.display());
    assert_eq!(captured.text, format!("12345678 [+1 characters]\n{notice}\n"));
    assert_eq!(fs::read(path).unwrap(), b"123456789\n");
}

#[test]
fn beyond_the_cap_bytes_are_counted_and_dropped() {
    let folder = TempDir::new().unwrap();
    let captured =
        capture(CaptureLimits { spill_bytes: 100, ..limits(&folder) }, &[&[b'a'; 70], &[b'b'; 70]]);
    assert_eq!(captured.bytes, 140);
    assert_eq!(fs::read(spill(&folder)).unwrap(), [[b'a'; 70].as_slice(), &[b'b'; 30]].concat());
    let notice = format!("; the first 100 bytes of the output are in {}]", spill(&folder).display());
    assert!(captured.text.contains(&notice), "{}", captured.text);
}

#[test]
fn a_disk_that_refuses_costs_the_file_and_not_the_output() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("spill"), "in the way").unwrap();
    let captured = capture(limits(&folder), &[&b"x\n".repeat(100)]);
    assert_eq!((captured.bytes, captured.spill), (200, None));
    assert!(captured.text.contains("left out; the whole output could not be saved: "), "{}", captured.text);
}

#[test]
fn binary_output_is_named_with_its_size_and_not_shown() {
    let folder = TempDir::new().unwrap();
    let captured = capture(limits(&folder), &[&[0; 5000]]);
    let notice = format!(
        "[binary output, 5000 bytes, not shown; the whole output is in {}]",
        spill(&folder).display()
    );
    assert_eq!((captured.text, captured.is_binary), (notice, true));
    assert_eq!(fs::read(spill(&folder)).unwrap(), [0; 5000]);
}

#[test]
fn a_file_that_others_could_read_is_replaced() {
    let folder = TempDir::new().unwrap();
    let path = spill(&folder);
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    capture(limits(&folder), &[&b"x\n".repeat(100)]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

fn limits(folder: &TempDir) -> CaptureLimits {
    let shown = Limits { lines: 6, bytes: 100, line_chars: 50 };
    CaptureLimits { shown, spill: Some(spill(folder)), ..CaptureLimits::default() }
}

fn spill(folder: &TempDir) -> PathBuf {
    folder.path().join("spill/output")
}

fn capture(limits: CaptureLimits, chunks: &[&[u8]]) -> Captured {
    let mut capture = Capture::new(limits);
    chunks.iter().for_each(|chunk| capture.push(chunk));
    capture.finish()
}
