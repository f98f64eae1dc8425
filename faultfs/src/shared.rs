//! The file system as a whole: server, mounts, faults and clock behind one lock, and what a test does with them.

use crate::client::Client;
use crate::faults::{Fault, Faults, Op, Rule};
use crate::fuse::Adapter;
use crate::server::{Caller, Server};
use crate::{Answer, Ino};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Calls of one mount that are done at once; those that hang count.
const THREADS: usize = 16;

/// How long the last close of a file may be on its way.
const CLOSING: Duration = Duration::from_millis(50);

/// What a file system is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a mount remembers names and attributes.
    pub ttl: Duration,
    /// Whether that time passes by itself, and not only when it is advanced.
    pub clock_runs: bool,
    /// Room on the server, bytes.
    pub capacity_bytes: u64,
    /// Seed of all chances.
    pub seed: u64,
    /// Mode of the root.
    pub mode: u32,
    /// After so long a call that hangs goes on, and all rules end: whoever was to end them may wait for a process that hangs.
    pub longest_hang: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            ttl: Duration::from_secs(60),
            clock_runs: false,
            capacity_bytes: 4 << 30,
            seed: 1,
            mode: 0o755,
            longest_hang: Duration::from_secs(300),
        }
    }
}

/// How a mount is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its process is killed: what it has written arrives.
    Process,
    /// Its node is dead: what was not written back is lost.
    Node,
}

/// All behind the lock.
#[derive(Debug)]
pub(crate) struct World {
    pub server: Server,
    pub clients: Vec<(Client, Option<Cut>)>,
    pub faults: Faults,
    advanced: Duration,
    runs_since: Option<Instant>,
    /// How often hung calls were released.
    released: u64,
    hung: usize,
}

impl World {
    /// The clock of the caches.
    pub fn now(&self) -> Duration {
        self.advanced + self.runs_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The time on the server.
    pub fn time(&self) -> SystemTime {
        SystemTime::now() + self.advanced
    }
}

/// Server, and what one mount sees of it, for one call.
pub(crate) struct Call<'a> {
    pub server: &'a mut Server,
    pub client: &'a mut Client,
    pub now: Duration,
    pub time: SystemTime,
    /// Only part of the bytes are to be read or written.
    pub is_short: bool,
}

/// The file system.
#[derive(Clone, Debug)]
pub struct FaultFs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    wake: Condvar,
    settings: Settings,
}

impl FaultFs {
    /// An empty one.
    pub fn new(settings: Settings) -> FaultFs {
        let root =
            Caller { uid: nix::unistd::getuid().as_raw(), gid: nix::unistd::getgid().as_raw(), now: SystemTime::now() };
        let world = World {
            server: Server::new(settings.capacity_bytes, root, settings.mode),
            clients: Vec::new(),
            faults: Faults::new(settings.seed),
            advanced: Duration::ZERO,
            runs_since: settings.clock_runs.then(Instant::now),
            released: 0,
            hung: 0,
        };
        FaultFs(Arc::new(Shared { world: Mutex::new(world), wake: Condvar::new(), settings }))
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more mount, for all users of the machine; it is gone when the answer is dropped.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn mount(&self, at: &Path) -> io::Result<Mounted> {
        let number = {
            let mut world = self.lock();
            world.clients.push((Client::new(self.0.settings.ttl), None));
            world.clients.len() - 1
        };
        let mut config = fuser::Config::default();
        config.mount_options = vec![
            fuser::MountOption::FSName("faultfs".to_string()),
            fuser::MountOption::Subtype("faultfs".to_string()),
            fuser::MountOption::DefaultPermissions,
            fuser::MountOption::NoDev,
        ];
        config.acl = fuser::SessionACL::All;
        (config.n_threads, config.clone_fd) = (Some(THREADS), true);
        let adapter = Adapter { fs: self.clone(), mount: number };
        let session = fuser::spawn_mount(adapter, at, &config)?;
        Ok(Mounted { fs: self.clone(), number, at: at.to_path_buf(), session: Some(session) })
    }

    /// Does a call of a mount, if no rule has it otherwise.
    pub(crate) fn call<T>(
        &self,
        mount: usize,
        op: Op,
        ino: Ino,
        name: Option<&OsStr>,
        act: impl FnOnce(Call<'_>) -> Answer<T>,
    ) -> Answer<T> {
        let mut world = self.lock();
        let is_cut = |world: &World| world.clients[mount].1.is_some();
        if is_cut(&world) {
            return Err(Errno::ESHUTDOWN);
        }
        let World { faults, server, .. } = &mut *world;
        let path = || {
            let path = server.path(ino);
            name.map_or_else(|| path.clone(), |name| path.join(name)).to_string_lossy().into_owned()
        };
        let (mut is_short, mut answer) = (false, None);
        match faults.meet(mount, op, path) {
            None => {}
            Some(Fault::Error(errno)) => {
                if matches!(op, Op::Flush | Op::Fsync) {
                    let World { server, clients, .. } = &mut *world;
                    clients[mount].0.lose(server, ino);
                }
                return Err(errno);
            }
            Some(Fault::DoneBut(errno)) => answer = Some(errno),
            Some(Fault::Short) => is_short = true,
            Some(Fault::Delay(time)) => {
                drop(world);
                thread::sleep(time);
                world = self.lock();
            }
            Some(Fault::Hang) => world = self.hang(world, mount),
            Some(Fault::Cut(cut)) => {
                cut_off(&mut world, mount, cut);
                return Err(Errno::ESHUTDOWN);
            }
        }
        if is_cut(&world) {
            return Err(Errno::ESHUTDOWN);
        }
        let (now, time) = (world.now(), world.time());
        let World { server, clients, .. } = &mut *world;
        let done = act(Call { server, client: &mut clients[mount].0, now, time, is_short })?;
        answer.map_or(Ok(done), Err)
    }

    fn hang<'a>(&'a self, mut world: MutexGuard<'a, World>, mount: usize) -> MutexGuard<'a, World> {
        let released = world.released;
        world.hung += 1;
        self.0.wake.notify_all();
        let hangs = |world: &mut World| world.released == released && world.clients[mount].1.is_none();
        let waited = self.0.wake.wait_timeout_while(world, self.0.settings.longest_hang, hangs);
        let (mut world, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        world.hung -= 1;
        if waited.timed_out() {
            world.faults.clear();
            world.released += 1;
            self.0.wake.notify_all();
        }
        world
    }

    /// Waits until the last close of a file that is to lose its name has arrived, if it is on its way.
    pub(crate) fn let_close(&self, mount: usize, folder: Ino, name: &OsStr) {
        let begun = Instant::now();
        while begun.elapsed() < CLOSING {
            let world = self.lock();
            if !world.clients[mount].0.is_closing(&world.server, folder, name) {
                return;
            }
            drop(world);
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// The last descriptor of a handle is closed; also on a mount that is cut off.
    pub(crate) fn release(&self, mount: usize, handle: u64) {
        let mut world = self.lock();
        let time = world.time();
        let World { server, clients, .. } = &mut *world;
        clients[mount].0.release(server, handle, time);
    }

    /// One more rule.
    pub fn add(&self, rule: Rule) {
        self.lock().faults.add(rule);
    }

    /// No rules any more; what hangs goes on.
    pub fn clear(&self) {
        self.lock().faults.clear();
        self.release_hung();
    }

    /// No rules any more, and the chances of another seed.
    pub fn begin_anew(&self, seed: u64) {
        self.lock().faults.begin_anew(seed);
        self.release_hung();
    }

    /// Lets all calls go on that hang.
    pub fn release_hung(&self) {
        self.lock().released += 1;
        self.0.wake.notify_all();
    }

    /// Waits until a call hangs; whether one does.
    pub fn wait_for_hang(&self, limit: Duration) -> bool {
        let none = |world: &mut World| world.hung == 0;
        let waited = self.0.wake.wait_timeout_while(self.lock(), limit, none);
        waited.unwrap_or_else(PoisonError::into_inner).0.hung > 0
    }

    /// Lets time pass for all caches.
    pub fn advance(&self, time: Duration) {
        self.lock().advanced += time;
    }

    /// The server crashes and begins again: of what was not synced, some is lost.
    pub fn crash(&self) {
        let mut world = self.lock();
        let World { server, faults, .. } = &mut *world;
        server.crash(faults.rng());
        faults.count("crash");
    }

    /// Cuts a mount off.
    pub fn cut(&self, mount: usize, cut: Cut) -> Answer<()> {
        let mut world = self.lock();
        world.clients.get(mount).ok_or(Errno::ENODEV)?;
        world.faults.count(&Fault::Cut(cut).kind());
        cut_off(&mut world, mount, cut);
        drop(world);
        self.0.wake.notify_all();
        Ok(())
    }

    /// Whether a mount is cut off.
    pub fn is_cut(&self, mount: usize) -> bool {
        self.lock().clients.get(mount).is_some_and(|(_, cut)| cut.is_some())
    }

    /// A mount that was cut off works again, as on a node that has booted.
    pub fn renew(&self, mount: usize) -> Answer<()> {
        let mut world = self.lock();
        world.clients.get_mut(mount).ok_or(Errno::ENODEV)?.1 = None;
        Ok(())
    }

    /// Changes a bit of a file, of which nobody is told; whether there was one to change.
    ///
    /// # Errors
    /// There is no such file.
    pub fn rot(&self, path: &Path, at: u64) -> Answer<bool> {
        let mut world = self.lock();
        let ino = world.server.find(path)?;
        world.faults.count("rot");
        world.server.rot(ino, at)
    }

    /// Gives the server room for so many bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().server.set_capacity(bytes);
    }

    /// The content of a file as it is on the server, by its path from the root.
    ///
    /// # Errors
    /// There is no such file.
    pub fn content(&self, path: &Path) -> Answer<Vec<u8>> {
        let world = self.lock();
        Ok(world.server.content(world.server.find(path)?)?.read(0, u64::MAX))
    }

    /// How often each kind of fault has happened, and how many calls there were.
    pub fn counts(&self) -> (BTreeMap<String, u64>, u64) {
        let world = self.lock();
        (world.faults.counts().clone(), world.faults.calls())
    }

    /// Bytes in all, those that are taken, and how many files there are.
    pub(crate) fn room(&self) -> (u64, u64, u64) {
        let world = self.lock();
        let (capacity, used) = world.server.room();
        (capacity, used, world.server.files())
    }
}

fn cut_off(world: &mut World, mount: usize, cut: Cut) {
    let time = world.time();
    let World { server, clients, .. } = world;
    let (client, state) = &mut clients[mount];
    client.forget(server, cut == Cut::Node, time);
    *state = Some(cut);
}

/// A mount.
#[derive(Debug)]
pub struct Mounted {
    fs: FaultFs,
    number: usize,
    at: PathBuf,
    session: Option<fuser::BackgroundSession>,
}

impl Mounted {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Its number, for rules.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What hangs would hold the kernel up.
        let _ = self.fs.cut(self.number, Cut::Node);
        let _ = umount2(&self.at, MntFlags::MNT_DETACH);
        drop(self.session.take());
    }
}
