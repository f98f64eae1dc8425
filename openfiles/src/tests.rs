//! Real processes hold real files.

use super::*;
use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that holds what its shell line opens; killed when it is dropped.
struct Holder(Child);

impl Holder {
    fn start(line: &str, folder: &Path) -> Holder {
        let line = format!("{line}; echo ready; exec sleep 1000");
        let mut child =
            Command::new("bash").args(["-c", &line]).current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let comm = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&comm).unwrap() != "sleep\n" {
            std::thread::sleep(Duration::from_millis(1));
        }
        Holder(child)
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn ids(folder: &Path, names: &[&str]) -> Vec<FileId> {
    let id = |name: &&str| {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap();
        id_of(&file).unwrap()
    };
    names.iter().map(id).collect()
}

#[test]
fn who_has_a_file_open_for_writing_is_found_and_who_reads_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let files = ids(dir.path(), &["read", "written"]);
    assert!(!files[0].fs.is_empty());
    let holder = Holder::start("exec 3<read 4>>written 5<written", dir.path());
    let pids = processes_of(Path::new("/proc"), fs::metadata("/proc/self").unwrap().uid()).unwrap();
    assert!(pids.contains(&holder.pid()));
    let look = writers(Path::new("/proc"), &[holder.pid()], &files, soon());
    let found: Vec<_> = look.writers.iter().map(|w| (w.pid, w.file, w.is_mapped, w.process.as_str())).collect();
    assert_eq!(found, [(holder.pid(), 1, false, "sleep")]);
    assert_eq!(look.unseen, Vec::<i32>::new());
    // Another name makes no other file, and another type of file system makes another.
    fs::rename(dir.path().join("written"), dir.path().join("renamed")).unwrap();
    assert_eq!(writers(Path::new("/proc"), &[holder.pid()], &files, soon()).writers.len(), 1);
    let elsewhere: Vec<FileId> = files.iter().map(|id| FileId { fs: "nfs4".into(), ..id.clone() }).collect();
    assert_eq!(writers(Path::new("/proc"), &[holder.pid()], &elsewhere, soon()).writers.len(), 0);
}

#[test]
fn who_maps_a_file_is_found_though_it_has_closed_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = ids(dir.path(), &["mapped"]);
    let file = OpenOptions::new().read(true).write(true).open(dir.path().join("mapped")).unwrap();
    file.set_len(4096).unwrap();
    let (rights, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
    // SAFETY: nobody uses the memory, and it is unmapped below.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, fd, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    drop(file);
    let own = [std::process::id() as i32];
    let look = writers(Path::new("/proc"), &own, &files, soon());
    assert!(look.writers.iter().any(|w| w.is_mapped && w.file == 0), "{look:?}");
    // SAFETY: it was mapped above, with this length.
    assert_eq!(unsafe { libc::munmap(memory, 4096) }, 0);
    assert_eq!(writers(Path::new("/proc"), &own, &files, soon()).writers, []);
}

#[test]
fn who_cannot_be_looked_into_is_not_taken_for_somebody_who_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let files = ids(dir.path(), &["file"]);
    let holder = Holder::start("exec 3>>file", dir.path());
    let late = Instant::now() - Duration::from_secs(1);
    assert_eq!(writers(Path::new("/proc"), &[holder.pid()], &files, late).unseen, [holder.pid()]);
    let gone = holder.pid();
    drop(holder);
    assert_eq!(writers(Path::new("/proc"), &[gone], &files, soon()), Look::default());
    // A /proc whose processes have no maps.
    let proc = dir.path().join("proc");
    fs::create_dir_all(proc.join("7/fd")).unwrap();
    fs::create_dir(proc.join("7/maps")).unwrap();
    assert_eq!(writers(&proc, &[7], &files, soon()).unseen, [7]);
}
