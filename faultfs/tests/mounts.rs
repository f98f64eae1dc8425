//! Two mounts of one server behave to programs as two clients of a network file system do.

use faultfs::{Command, Cut, Fault, FaultFs, Mounted, Op, Rule, Settings};
use nix::errno::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

struct Both {
    fs: FaultFs,
    mounts: Vec<Mounted>,
    _places: tempfile::TempDir,
}

impl Both {
    fn new() -> Both {
        Both::with(Settings { capacity_bytes: 64 << 20, ..Settings::default() })
    }

    fn with(settings: Settings) -> Both {
        let places = tempfile::tempdir().unwrap();
        let fs = FaultFs::new(settings);
        let mount = |name: &str| {
            let at = places.path().join(name);
            fs::create_dir(&at).unwrap();
            fs.mount(&at).unwrap()
        };
        let mounts = vec![mount("a"), mount("b")];
        Both { fs, mounts, _places: places }
    }

    fn a(&self, name: &str) -> PathBuf {
        self.mounts[0].path().join(name)
    }

    fn b(&self, name: &str) -> PathBuf {
        self.mounts[1].path().join(name)
    }

    fn fault(&self, line: &str) {
        self.fs.obey(&line.parse::<Command>().unwrap()).unwrap();
    }
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_raw(result.unwrap_err().raw_os_error().unwrap())
}

#[test]
fn who_opens_a_file_sees_what_was_written_before_it_was_closed_and_who_looks_may_see_what_was() {
    let both = Both::new();
    fs::write(both.a("file"), "one").unwrap();
    assert_eq!(fs::read_to_string(both.b("file")).unwrap(), "one");
    let mut writer = OpenOptions::new().append(true).open(both.a("file")).unwrap();
    writer.write_all(b" and two").unwrap();
    assert_eq!(fs::read_to_string(both.b("file")).unwrap(), "one", "it is not written back yet");
    drop(writer);
    assert_eq!(fs::metadata(both.b("file")).unwrap().len(), 3, "attributes are remembered");
    assert_eq!(fs::read_to_string(both.b("file")).unwrap(), "one and two");
    assert_eq!(fs::metadata(both.b("file")).unwrap().len(), 11);
    // A name that was not there is remembered, too, and what is in a folder.
    assert!(!both.b("new").exists());
    assert_eq!(fs::read_dir(both.b("")).unwrap().count(), 1);
    fs::write(both.a("new"), "").unwrap();
    assert!(!both.b("new").exists());
    assert_eq!(fs::read_dir(both.b("")).unwrap().count(), 1);
    assert_eq!(errno(OpenOptions::new().write(true).create_new(true).open(both.b("new"))), Errno::EEXIST);
    fs::write(both.b("own"), "").unwrap();
    assert!(both.b("new").exists(), "who changes a folder asks anew");
    fs::write(both.a("third"), "").unwrap();
    both.fs.advance(Duration::from_secs(60));
    assert_eq!(fs::read_dir(both.b("")).unwrap().count(), 4);
}

#[test]
fn files_have_owners_modes_links_holes_and_attributes() {
    let both = Both::new();
    let file = both.a("file");
    let mut sparse = File::create(&file).unwrap();
    sparse.seek(SeekFrom::Start(10 << 20)).unwrap();
    sparse.write_all(b"end").unwrap();
    sparse.sync_all().unwrap();
    assert!(sparse.metadata().unwrap().blocks() <= 8);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o2640)).unwrap();
    std::os::unix::fs::chown(&file, Some(1234), Some(5678)).unwrap();
    xattr::set(&file, "user.run", b"a\0b").unwrap();
    fs::hard_link(&file, both.a("same")).unwrap();
    symlink("file", both.a("link")).unwrap();
    nix::unistd::mkfifo(&both.a("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let there = fs::metadata(both.b("link")).unwrap();
    assert_eq!((there.uid(), there.gid(), there.nlink(), there.len()), (1234, 5678, 2, (10 << 20) + 3));
    assert_eq!(there.permissions().mode() & 0o777, 0o640);
    assert_eq!(xattr::get(both.b("same"), "user.run").unwrap().unwrap(), b"a\0b");
    assert_eq!(errno(fs::remove_dir(both.b("file"))), Errno::ENOTDIR);
    fs::create_dir_all(both.a("x/y/z")).unwrap();
    fs::write(both.a("x/y/z/f"), vec![7; 3 << 20]).unwrap();
    fs::rename(both.a("x/y"), both.a("moved")).unwrap();
    assert_eq!(fs::read(both.b("moved/z/f")).unwrap(), vec![7; 3 << 20]);
    fs::remove_dir_all(both.a("moved")).unwrap();
    assert_eq!(fs::read_dir(both.a("x")).unwrap().count(), 0);
    assert!(std::process::Command::new("cp").arg("/bin/true").arg(both.a("true")).status().unwrap().success());
    assert!(std::process::Command::new(both.b("true")).status().unwrap().success(), "programs run from it");
}

#[test]
fn a_file_that_is_removed_stays_for_its_own_mount_and_is_stale_for_others() {
    let both = Both::new();
    fs::write(both.a("file"), "content").unwrap();
    let (mut own, mut other) = (File::open(both.a("file")).unwrap(), File::open(both.b("file")).unwrap());
    fs::remove_file(both.a("file")).unwrap();
    let mut text = String::new();
    own.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    let names: Vec<_> = fs::read_dir(both.a("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() == 1 && names[0].to_string_lossy().starts_with(".nfs"), "{names:?}");
    text.clear();
    other.read_to_string(&mut text).unwrap();
    drop(own);
    let gone = || fs::read_dir(both.a("")).unwrap().count() == 0;
    assert!((0..100).any(|_| gone() || {
        thread::sleep(Duration::from_millis(10));
        false
    }));
    other.seek(SeekFrom::Start(0)).unwrap();
    assert_eq!(errno(other.read_to_string(&mut text)), Errno::ESTALE);
}

#[test]
fn rules_make_calls_fail_be_short_be_late_or_hang() {
    let both = Both::new();
    both.fault("fault error=EDQUOT op=write path=*/full mount=0 after=1 times=1");
    let mut file = File::create(both.a("full")).unwrap();
    file.write_all(b"1").unwrap();
    assert_eq!(errno(file.write_all(b"2")), Errno::EDQUOT);
    file.write_all(b"3").unwrap();
    both.fault("fault error=ENOSPC op=fsync times=1");
    assert_eq!(errno(file.sync_all()), Errno::ENOSPC);
    file.sync_all().unwrap();
    assert_eq!(fs::read(both.b("full")).unwrap(), b"", "what was not taken is lost, and told once");
    both.fault("clear");
    both.fault("fault short op=write times=1");
    assert_eq!(file.write(b"four").unwrap(), 2);
    both.fault("fault done-but=ETIMEDOUT op=rename times=1");
    assert_eq!(errno(fs::rename(both.a("full"), both.a("renamed"))), Errno::ETIMEDOUT);
    assert!(both.a("renamed").exists());
    both.fs.add(Rule { ops: vec![Op::Mkdir], mount: Some(1), ..Rule::always(Fault::Hang) });
    let at = both.b("late");
    let hangs = thread::spawn(move || fs::create_dir(at));
    assert!(both.fs.wait_for_hang(Duration::from_secs(10)));
    assert!(!hangs.is_finished() && fs::create_dir(both.a("now")).is_ok());
    both.fault("clear");
    hangs.join().unwrap().unwrap();
    assert!(both.fs.content("/renamed".as_ref()).is_ok() && both.fs.counts().0["hang"] == 1);
}

#[test]
fn a_hang_that_nobody_ends_ends_by_itself_and_the_rules_with_it() {
    let both = Both::with(Settings { longest_hang: Duration::from_millis(200), ..Settings::default() });
    both.fs.add(Rule { ops: vec![Op::Mkdir], ..Rule::always(Fault::Hang) });
    fs::create_dir(both.a("late")).unwrap();
    fs::create_dir(both.b("at once")).unwrap();
    assert_eq!(both.fs.counts().0["hang"], 1);
}

#[test]
fn a_mount_that_is_cut_off_changes_nothing_and_a_dead_node_loses_what_it_held() {
    let both = Both::new();
    for (cut, left) in [(Cut::Process, &b"written"[..]), (Cut::Node, b"")] {
        let mut file = File::create(both.a("file")).unwrap();
        file.write_all(b"written").unwrap();
        both.fs.cut(0, cut).unwrap();
        assert_eq!(errno(file.write_all(b"later")), Errno::ESHUTDOWN);
        assert!(fs::remove_file(both.a("file")).is_err());
        assert_eq!(fs::read(both.b("file")).unwrap(), left, "{cut:?}");
        drop(file);
        both.fs.renew(0).unwrap();
        assert_eq!(fs::read(both.a("file")).unwrap(), left);
    }
}

#[test]
fn a_server_that_crashes_keeps_what_was_synced_and_may_lose_the_rest() {
    let mut survived = 0;
    let both = Both::new();
    for round in 0..20 {
        let (kept, loose) = (format!("kept{round}"), format!("loose{round}"));
        let mut file = File::create(both.a(&kept)).unwrap();
        file.write_all(b"synced").unwrap();
        file.sync_all().unwrap();
        File::open(both.a("")).unwrap().sync_all().unwrap();
        fs::write(both.a(&loose), "not synced").unwrap();
        both.fs.crash();
        both.fs.advance(Duration::from_secs(60));
        assert_eq!(fs::read(both.a(&kept)).unwrap(), b"synced");
        survived += usize::from(fs::read(both.a(&loose)).is_ok_and(|content| content == b"not synced"));
    }
    assert!((1..20).contains(&survived), "{survived} of 20");
}
