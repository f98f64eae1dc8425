//! Increments: of the memory in a dump only the blocks are written that an earlier checkpoint does not have.
//!
//! ```text
//!  images/pages-1.img ─┐ blocks of   ┌─ index.json.zst   which block of which pack each block of each file is
//!  images/pages-2.img ─┼─ 4 KiB ───> ├─ 0.pack           blocks of earlier checkpoints: more names of their files
//!  tmp.tar ────────────┘             ├─ 3.pack           blocks that are new, each once
//!                                    └─ 0.hashes ...     by which the next dump knows a block again
//! ```
//!
//! A checkpoint's folder is whole by itself: a pack of an earlier one is there under one more name, so that the earlier one
//! can be removed. A pack is never written to once its dump has ended. After [`MOST_PACKS`] packs, or when a third of the
//! earlier ones is of no more use, all is written anew.

mod stop;

pub use stop::{Stop, Stoppable};

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Component, Path, PathBuf};

/// Folder of a dump with its blocks.
pub const FOLDER: &str = protocol::Manifest::BLOCKS;

const INDEX: &str = "index.json.zst";

/// Version of the index.
const VERSION: u32 = 1;

/// Size of a block, bytes: that of a page of memory.
const BLOCK_BYTES: usize = 4096;

/// Blocks that are read at once.
const AT_ONCE: usize = 256;

/// Files smaller than this are written whole, bytes.
const SMALL_BYTES: u64 = 256 << 10;

/// Most packs of a checkpoint: a restore reads all of them.
const MOST_PACKS: usize = 8;

/// Compression level at which zstd is as fast as a disk.
pub const LEVEL: i32 = 1;

/// BLAKE3 of a block, its first half: two blocks that differ must never count as one, and a program's memory holds what
/// others have sent it.
type Hash = [u8; 16];

/// Where a block is: the number of its pack, and its place there.
type Place = (u32, u32);

/// Blocks that follow each other in a pack: its number, the first of them, and how many they are.
type Blocks = (u32, u32, u32);

/// That the large files of a dump are stored as blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Increments {
    /// Folder of the same program's dump in an earlier checkpoint, whose blocks may be shared.
    pub base: Option<PathBuf>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Index {
    version: u32,
    /// Number of blocks of each pack.
    packs: BTreeMap<u32, u32>,
    files: Vec<Stored>,
}

/// A file of a dump.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    /// Its path within the dump.
    path: PathBuf,
    /// Its length, bytes. The last block is filled up with zeros.
    bytes: u64,
    blocks: Vec<Blocks>,
}

/// Blocks of an earlier checkpoint.
#[derive(Debug, Default)]
struct Known {
    packs: BTreeMap<u32, u32>,
    places: HashMap<Hash, Place>,
}

/// A file that is to be stored, block by block.
struct Large {
    /// Within the dump.
    path: PathBuf,
    bytes: u64,
    hashes: Vec<Hash>,
}

/// Blocks of a file that are new: its number, the first, and how many.
type Fresh = (usize, usize, usize);

/// Where all blocks of a dump go.
struct Layout {
    /// With the packs that are shared, and the new one, if there is one.
    index: Index,
    /// The number of the new pack.
    number: u32,
    /// What is written to it.
    fresh: Vec<Fresh>,
}

/// Stores the large files of the dump in `from` below `to`, and removes them from `from`.
///
/// # Errors
/// What the file system says.
pub fn store(from: &Path, to: &Path, of: &Increments, compress: bool, stop: &Stop) -> io::Result<()> {
    let large = large(from)?.into_iter().map(|(path, bytes)| hashed(from, path, bytes, stop));
    let large = large.collect::<io::Result<Vec<Large>>>()?;
    if large.is_empty() {
        return Ok(());
    }
    let folder = to.join(FOLDER);
    DirBuilder::new().mode(0o700).create(&folder)?;
    let shared = of.base.as_ref().map(|base| base.join(FOLDER));
    let read = |base: &Path| {
        let unread =
            |e: &io::Error| tracing::warn!(%e, "blocks of an earlier checkpoint cannot be read: all are written");
        Known::read(base).inspect_err(unread).ok()
    };
    let known = shared.as_deref().and_then(read).filter(|known| known.are_worth(&large));
    let mut layout = known.unwrap_or_default().layout(&large);
    let linked = shared.map(|base| layout.shared().try_for_each(|pack| link(&base, &folder, pack)));
    if let Some(Err(e)) = linked {
        tracing::warn!(%e, "blocks of an earlier checkpoint cannot be shared: all are written");
        fs::remove_dir_all(&folder)?;
        DirBuilder::new().mode(0o700).create(&folder)?;
        layout = Known::default().layout(&large);
    }
    let Layout { index, number, fresh } = &layout;
    if !fresh.is_empty() {
        write_pack(from, &folder, *number, &large, fresh, compress, stop)?;
    }
    // Nobody could restore a dump whose index names what is not there.
    index.portions()?;
    let mut writer = BufWriter::new(zstd::Encoder::new(stop.create(&folder.join(INDEX))?, LEVEL)?);
    serde_json::to_writer(&mut writer, index)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
    large.iter().try_for_each(|file| fs::remove_file(from.join(&file.path)))
}

/// Writes the large files of a dump below `to`, if it has blocks.
///
/// # Errors
/// What the file system says, or that the index is not one.
pub fn rebuild(from: &Path, to: &Path) -> io::Result<()> {
    let folder = from.join(FOLDER);
    let Some(index) = Index::read(&folder)? else { return Ok(()) };
    let create = |file: &Stored| {
        let path = to.join(&file.path);
        path.parent().map_or(Ok(()), |above| DirBuilder::new().mode(0o700).recursive(true).create(above))?;
        let created = File::options().write(true).create_new(true).open(&path)?;
        created.set_len(file.bytes).map(|()| created)
    };
    let files = index.files.iter().map(create).collect::<io::Result<Vec<File>>>()?;
    let mut portions = index.portions()?;
    for (pack, all) in &mut portions {
        let mut reader = open_pack(&folder, *pack)?;
        let mut buffer = vec![0; AT_ONCE * BLOCK_BYTES];
        for (number, portion) in all.iter().enumerate() {
            let left = (index.packs[pack] as usize - number * AT_ONCE).min(AT_ONCE);
            reader.read_exact(&mut buffer[..left * BLOCK_BYTES])?;
            for part in portion {
                let (from, at) = (part.first * BLOCK_BYTES, part.to as u64 * BLOCK_BYTES as u64);
                let most = index.files[part.file].bytes.saturating_sub(at).min((part.count * BLOCK_BYTES) as u64);
                files[part.file].write_all_at(&buffer[from..from + most as usize], at)?;
            }
        }
    }
    Ok(())
}

/// Length of the files that [`rebuild`] writes, bytes; 0 if the dump has no blocks.
///
/// # Errors
/// As there.
pub fn rebuilt_bytes(from: &Path) -> io::Result<u64> {
    Ok(Index::read(&from.join(FOLDER))?.map_or(0, |index| index.files.iter().map(|file| file.bytes).sum()))
}

/// Part of what is read at once from a pack, and where it goes.
struct Part {
    /// The first block within the portion.
    first: usize,
    count: usize,
    /// Number of the file.
    file: usize,
    /// Block of the file at which it begins.
    to: usize,
}

impl Index {
    fn read(folder: &Path) -> io::Result<Option<Index>> {
        let file = match File::open(folder.join(INDEX)) {
            Err(e) if e.kind() == ErrorKind::NotFound && !folder.exists() => return Ok(None),
            opened => opened?,
        };
        let index: Index = serde_json::from_reader(BufReader::new(zstd::Decoder::new(file)?))?;
        let is_below = |file: &Stored| file.path.components().all(|part| matches!(part, Component::Normal(_)));
        if index.version == VERSION && index.files.iter().all(is_below) {
            return Ok(Some(index));
        }
        Err(invalid("the index of its blocks is of another version"))
    }

    /// What is read of each pack, [`AT_ONCE`] blocks by [`AT_ONCE`] blocks.
    fn portions(&self) -> io::Result<BTreeMap<u32, Vec<Vec<Part>>>> {
        let empty = |count: &u32| (0..count.div_ceil(AT_ONCE as u32)).map(|_| Vec::new()).collect();
        let mut all: BTreeMap<u32, Vec<Vec<Part>>> = self.packs.iter().map(|(n, count)| (*n, empty(count))).collect();
        for (number, file) in self.files.iter().enumerate() {
            let mut to = 0;
            for (pack, first, count) in &file.blocks {
                let (mut first, end) = (*first as usize, *first as usize + *count as usize);
                let is_there = self.packs.get(pack).is_some_and(|blocks| end <= *blocks as usize);
                let Some(portions) = all.get_mut(pack).filter(|_| is_there) else {
                    return Err(invalid("the index of its blocks names one that is not there"));
                };
                while first < end {
                    let count = (end - first).min(AT_ONCE - first % AT_ONCE);
                    portions[first / AT_ONCE].push(Part { first: first % AT_ONCE, count, file: number, to });
                    (first, to) = (first + count, to + count);
                }
            }
        }
        Ok(all)
    }
}

impl Known {
    /// The blocks of an earlier dump; none if it has only whole files.
    fn read(folder: &Path) -> io::Result<Known> {
        let Some(index) = Index::read(folder)? else { return Ok(Known::default()) };
        let mut places = HashMap::with_capacity(index.packs.values().map(|blocks| *blocks as usize).sum());
        for (pack, blocks) in &index.packs {
            let bytes = fs::read(folder.join(format!("{pack}.hashes")))?;
            let (hashes, rest) = bytes.as_chunks::<{ size_of::<Hash>() }>();
            if hashes.len() != *blocks as usize || !rest.is_empty() {
                return Err(invalid("the hashes of its blocks are not whole"));
            }
            places.extend(hashes.iter().zip(0..).map(|(hash, at)| (*hash, (*pack, at))));
        }
        Ok(Known { packs: index.packs, places })
    }

    /// Whether sharing them saves much: one more pack is not too many, two thirds of what they hold are still used, so that
    /// a checkpoint takes half more room than its dump at the most, and they are a good part of the dump.
    fn are_worth(&self, large: &[Large]) -> bool {
        let stored = self.packs.values().map(|blocks| *blocks as usize).sum::<usize>();
        let all = large.iter().flat_map(|file| &file.hashes);
        let (mut blocks, mut kept) = (0, 0);
        for hash in all {
            blocks += 1;
            kept += usize::from(self.places.contains_key(hash));
        }
        self.packs.len() < MOST_PACKS && kept * 3 >= stored * 2 && kept * 4 >= blocks && kept > 0
    }

    /// Where each block of a dump is, or goes. The new pack comes after all of these, also those of no more use.
    fn layout(mut self, large: &[Large]) -> Layout {
        let number = self.packs.keys().next_back().map_or(0, |last| last + 1);
        let mut index = Index { version: VERSION, packs: BTreeMap::new(), files: Vec::new() };
        let (mut fresh, mut next): (Vec<Fresh>, u32) = (Vec::new(), 0);
        for (of, file) in large.iter().enumerate() {
            let mut blocks: Vec<Blocks> = Vec::new();
            for (at, hash) in file.hashes.iter().enumerate() {
                let (pack, place) = *self.places.entry(*hash).or_insert_with(|| {
                    match fresh.last_mut() {
                        Some((last, first, count)) if (*last, *first + *count) == (of, at) => *count += 1,
                        _ => fresh.push((of, at, 1)),
                    }
                    next += 1;
                    (number, next - 1)
                });
                if let Some(blocks) = self.packs.get(&pack) {
                    index.packs.entry(pack).or_insert(*blocks);
                }
                match blocks.last_mut() {
                    Some((last, first, count)) if (*last, *first + *count) == (pack, place) => *count += 1,
                    _ => blocks.push((pack, place, 1)),
                }
            }
            index.files.push(Stored { path: file.path.clone(), bytes: file.bytes, blocks });
        }
        if next > 0 {
            index.packs.insert(number, next);
        }
        Layout { index, number, fresh }
    }
}

impl Layout {
    /// The packs that earlier checkpoints have.
    fn shared(&self) -> impl Iterator<Item = u32> {
        self.index.packs.keys().copied().filter(|pack| *pack != self.number)
    }
}

/// Paths and lengths of the files of a dump that are stored as blocks: memory and archives.
fn large(from: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let (mut all, mut folders) = (Vec::new(), vec![from.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
            let entry = entry?;
            let is_memory = path.extension().is_some_and(|ending| ending == "img" || ending == "tar");
            if entry.is_dir() {
                folders.push(path);
            } else if entry.is_file() && is_memory && entry.len() >= SMALL_BYTES {
                all.push((path.strip_prefix(from).unwrap_or(&path).to_path_buf(), entry.len()));
            }
        }
    }
    all.sort();
    Ok(all)
}

/// Reads a file once, for the hashes of its blocks.
fn hashed(from: &Path, path: PathBuf, bytes: u64, stop: &Stop) -> io::Result<Large> {
    let mut file = File::open(from.join(&path))?;
    let mut buffer = vec![0; AT_ONCE * BLOCK_BYTES];
    let mut hashes = Vec::with_capacity(bytes.div_ceil(BLOCK_BYTES as u64) as usize);
    let mut left = bytes;
    while left > 0 {
        stop.check()?;
        let length = left.min(buffer.len() as u64) as usize;
        file.read_exact(&mut buffer[..length])?;
        let whole = length.next_multiple_of(BLOCK_BYTES);
        buffer[length..whole].fill(0);
        hashes.extend(buffer[..whole].as_chunks::<BLOCK_BYTES>().0.iter().map(|block| hash(block)));
        left -= length as u64;
    }
    Ok(Large { path, bytes, hashes })
}

fn hash(block: &[u8]) -> Hash {
    let mut half = Hash::default();
    half.copy_from_slice(&blake3::hash(block).as_bytes()[..size_of::<Hash>()]);
    half
}

/// Writes the new blocks, and their hashes.
fn write_pack(
    from: &Path,
    folder: &Path,
    number: u32,
    large: &[Large],
    fresh: &[Fresh],
    compress: bool,
    stop: &Stop,
) -> io::Result<()> {
    let (plain, packed) = names(folder, number);
    let mut pack = match compress {
        true => Pack::Packed(Box::new(zstd::Encoder::new(stop.create(&packed)?, LEVEL)?)),
        false => Pack::Plain(stop.create(&plain)?),
    };
    let mut hashes = BufWriter::new(stop.create(&folder.join(format!("{number}.hashes")))?);
    let mut buffer = vec![0; AT_ONCE * BLOCK_BYTES];
    let mut filled = 0;
    let mut open: Option<(usize, File)> = None;
    for &(of, first, count) in fresh {
        let Large { path, bytes, hashes: all } = &large[of];
        if open.as_ref().is_none_or(|(which, _)| *which != of) {
            open = Some((of, File::open(from.join(path))?));
        }
        let Some((_, file)) = &open else { continue };
        let (mut at, end) = (first, first + count);
        while at < end {
            let blocks = (end - at).min((buffer.len() - filled) / BLOCK_BYTES);
            let (begin, room) = ((at * BLOCK_BYTES) as u64, blocks * BLOCK_BYTES);
            let length = (bytes - begin).min(room as u64) as usize;
            file.read_exact_at(&mut buffer[filled..filled + length], begin)?;
            buffer[filled + length..filled + room].fill(0);
            (at, filled) = (at + blocks, filled + room);
            if filled == buffer.len() {
                pack.write_all(&buffer)?;
                filled = 0;
            }
        }
        all[first..end].iter().try_for_each(|hash| hashes.write_all(hash))?;
    }
    pack.write_all(&buffer[..filled])?;
    hashes.flush()?;
    pack.finish()
}

/// A pack that is being written.
enum Pack {
    Plain(Stoppable),
    Packed(Box<zstd::Encoder<'static, Stoppable>>),
}

impl Pack {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Pack::Plain(file) => file.write_all(bytes),
            Pack::Packed(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Pack::Plain(_) => Ok(()),
            Pack::Packed(encoder) => encoder.finish().map(drop),
        }
    }
}

fn open_pack(folder: &Path, number: u32) -> io::Result<Box<dyn Read>> {
    let (plain, packed) = names(folder, number);
    match File::open(&packed) {
        Ok(file) => Ok(Box::new(zstd::Decoder::new(file)?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Box::new(File::open(plain)?)),
        Err(e) => Err(e),
    }
}

/// Gives the files of a pack one more name.
fn link(from: &Path, to: &Path, number: u32) -> io::Result<()> {
    let named = |path: PathBuf| path.file_name().map(|name| (from.join(name), to.join(name)));
    let (plain, packed) = names(from, number);
    let pack = if packed.exists() { packed } else { plain };
    [pack, from.join(format!("{number}.hashes"))]
        .into_iter()
        .filter_map(named)
        .try_for_each(|(from, to)| fs::hard_link(from, to))
}

/// Paths of a pack: as it is, and compressed.
fn names(folder: &Path, number: u32) -> (PathBuf, PathBuf) {
    (folder.join(format!("{number}.pack")), folder.join(format!("{number}.pack.zst")))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
