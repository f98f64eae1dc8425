//! Dumps of a memory that changes, one upon another.

use super::*;
use proptest::prelude::*;
use std::os::unix::fs::MetadataExt;

/// A run of dumps, each in a folder of its number.
struct Dumps(tempfile::TempDir);

impl Dumps {
    fn new() -> Dumps {
        Dumps(tempfile::tempdir().unwrap())
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(number.to_string())
    }

    /// Stores these files as a dump that may share the blocks of another; how many bytes of packs are its own.
    fn dump(&self, number: usize, files: &[(&str, &[u8])], base: Option<usize>, compress: bool) -> u64 {
        let (from, to) = (self.0.path().join("from"), self.path(number));
        for (name, bytes) in files {
            let path = from.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::create_dir(&to).unwrap();
        let increments = Increments { base: base.map(|number| self.path(number)) };
        store(&from, &to, &increments, compress, &Stop::default()).unwrap();
        assert!(files.iter().all(|(name, bytes)| from.join(name).exists() == (bytes.len() < SMALL_BYTES as usize)));
        fs::remove_dir_all(&from).unwrap();
        self.own(number).iter().map(|(_, bytes)| bytes).sum()
    }

    /// The packs that no other dump has, with their sizes.
    fn own(&self, number: usize) -> Vec<(String, u64)> {
        let all = fs::read_dir(self.path(number).join(FOLDER)).unwrap().map(|entry| entry.unwrap());
        let own = all.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap()));
        own.filter(|(name, m)| name.contains(".pack") && m.nlink() == 1).map(|(name, m)| (name, m.len())).collect()
    }

    fn packs(&self, number: usize) -> usize {
        Index::read(&self.path(number).join(FOLDER)).unwrap().unwrap().packs.len()
    }

    fn comes_back(&self, number: usize, files: &[(&str, &[u8])]) {
        let back = tempfile::tempdir().unwrap();
        rebuild(&self.path(number), back.path()).unwrap();
        let large = files.iter().filter(|(_, bytes)| bytes.len() >= SMALL_BYTES as usize);
        let mut sum = 0;
        for (name, bytes) in large {
            sum += bytes.len() as u64;
            assert!(fs::read(back.path().join(name)).unwrap() == *bytes, "{name} of dump {number}");
        }
        assert_eq!(rebuilt_bytes(&self.path(number)).unwrap(), sum);
    }
}

/// A memory of this many blocks, all different from each other and from those of another seed.
fn memory(blocks: usize, seed: u32) -> Vec<u8> {
    let word =
        |at: usize| (at as u32 / 1024).wrapping_mul(2_654_435_761).wrapping_add(seed).wrapping_mul(at as u32 | 1);
    (0..blocks * BLOCK_BYTES / 4).flat_map(|at| word(at).to_le_bytes()).collect()
}

/// Changes these blocks.
fn change(memory: &mut [u8], blocks: impl IntoIterator<Item = usize>, by: u8) {
    blocks.into_iter().for_each(|block| memory[block * BLOCK_BYTES + 17] ^= by);
}

const PAGES: &str = "images/pages-1.img";

#[test]
fn only_what_has_changed_is_written_and_all_comes_back_also_without_the_earlier_ones() {
    for compress in [false, true] {
        let (dumps, mut all) = (Dumps::new(), memory(1000, 1));
        let full = dumps.dump(1, &[(PAGES, &all)], None, compress);
        assert!(compress || full == all.len() as u64, "{full}");
        for number in 2..=4 {
            change(&mut all, (0..50).map(|i| i * 19 + number), number as u8);
            let written = dumps.dump(number, &[(PAGES, &all)], Some(number - 1), compress);
            assert!(written * 100 < 8 * all.len() as u64, "{written} bytes of dump {number}");
            fs::remove_dir_all(dumps.path(number - 1)).unwrap();
            dumps.comes_back(number, &[(PAGES, &all)]);
        }
    }
}

#[test]
fn a_pack_that_is_no_longer_used_does_not_confuse_the_next() {
    let (dumps, mut all) = (Dumps::new(), memory(1000, 1));
    dumps.dump(1, &[(PAGES, &all)], None, false);
    for number in 2..=6 {
        // The same blocks each time: nothing of the pack before is used any more.
        change(&mut all, 0..50, 1 << number);
        // A site may change its mind about compression.
        dumps.dump(number, &[(PAGES, &all)], Some(number - 1), number % 2 == 0);
        assert_eq!(dumps.packs(number), 2);
        dumps.comes_back(number, &[(PAGES, &all)]);
    }
}

#[test]
fn equal_memory_of_several_processes_is_written_once_and_small_files_stay() {
    let (dumps, all) = (Dumps::new(), memory(300, 1));
    let mut other = all.clone();
    other.truncate(299 * BLOCK_BYTES + 100);
    let files: [(&str, &[u8]); 4] =
        [(PAGES, &all), ("images/pages-2.img", &all), ("tmp.tar", &other), ("images/mm-7.img", &all[..4096])];
    let written = dumps.dump(1, &files, None, false);
    assert_eq!(written, 301 * BLOCK_BYTES as u64, "the end of a file is a block of its own");
    dumps.comes_back(1, &files);
}

#[test]
fn all_is_written_anew_when_little_is_kept_and_after_many_increments() {
    let (dumps, mut all) = (Dumps::new(), memory(1000, 1));
    let full = dumps.dump(0, &[(PAGES, &all)], None, false);
    for number in 1..=MOST_PACKS {
        change(&mut all, [number], 1);
        let written = dumps.dump(number, &[(PAGES, &all)], Some(number - 1), false);
        let is_full = number == MOST_PACKS;
        assert_eq!(written, if is_full { full } else { BLOCK_BYTES as u64 });
        assert_eq!(dumps.packs(number), if is_full { 1 } else { number + 1 });
        dumps.comes_back(number, &[(PAGES, &all)]);
    }
    change(&mut all, 0..800, 9);
    let written = dumps.dump(20, &[(PAGES, &all)], Some(MOST_PACKS), false);
    assert_eq!((written, dumps.packs(20)), (full, 1));
    // Nothing of a pack is used any more: it does not come along.
    let only = memory(100, 7);
    dumps.dump(21, &[(PAGES, &only)], None, false);
    let grown = [only.clone(), memory(40, 8)].concat();
    dumps.dump(22, &[(PAGES, &grown)], Some(21), false);
    dumps.dump(23, &[(PAGES, &only)], Some(22), false);
    assert_eq!((dumps.packs(22), dumps.packs(23), dumps.own(23).len()), (2, 1, 0));
    dumps.comes_back(23, &[(PAGES, &only)]);
}

#[test]
fn an_earlier_dump_that_is_gone_broken_or_elsewhere_costs_a_whole_one_and_no_more() {
    let (dumps, all) = (Dumps::new(), memory(200, 1));
    let full = dumps.dump(1, &[(PAGES, &all)], None, false);
    assert_eq!(dumps.dump(2, &[(PAGES, &all)], Some(99), false), full);
    fs::write(dumps.path(2).join(FOLDER).join("0.hashes"), "short").unwrap();
    assert_eq!(dumps.dump(3, &[(PAGES, &all)], Some(2), false), full);
    fs::remove_file(dumps.path(3).join(FOLDER).join("0.pack")).unwrap();
    assert_eq!(dumps.dump(4, &[(PAGES, &all)], Some(3), false), full);
    fs::write(dumps.path(4).join(FOLDER).join(INDEX), "no index").unwrap();
    assert_eq!(dumps.dump(5, &[(PAGES, &all)], Some(4), false), full);
    dumps.comes_back(5, &[(PAGES, &all)]);
    assert!(rebuild(&dumps.path(4), dumps.0.path()).is_err(), "an index that cannot be read is no dump without blocks");
}

#[test]
fn an_index_that_leads_outside_is_refused() {
    let (dumps, all) = (Dumps::new(), memory(100, 1));
    dumps.dump(1, &[(PAGES, &all)], None, false);
    let folder = dumps.path(1).join(FOLDER);
    let index = Index::read(&folder).unwrap().unwrap();
    let with = |change: &dyn Fn(&mut Index)| {
        let mut changed = index.clone();
        change(&mut changed);
        fs::write(folder.join(INDEX), zstd::encode_all(&*serde_json::to_vec(&changed).unwrap(), 1).unwrap()).unwrap();
        let back = tempfile::tempdir().unwrap();
        rebuild(&dumps.path(1), back.path()).map_err(|e| e.to_string())
    };
    assert_eq!(with(&|_| {}), Ok(()));
    for path in ["../up.img", "/tmp/up.img"] {
        assert!(with(&|index| index.files[0].path = path.into()).is_err(), "{path}");
    }
    assert!(with(&|index| index.files[0].blocks[0] = (0, 90, 11)).is_err());
    assert!(with(&|index| index.files[0].blocks[0] = (5, 0, 1)).is_err());
    assert!(with(&|index| index.version = 2).is_err());
    assert!(with(&|index| *index.packs.get_mut(&0).unwrap() = 101).is_err(), "a pack that is cut off");
}

#[test]
fn work_that_is_not_wanted_stops() {
    let dumps = Dumps::new();
    let (from, stop) = (dumps.0.path().join("from"), Stop::default());
    fs::create_dir(&from).unwrap();
    fs::write(from.join("pages-1.img"), memory(100, 1)).unwrap();
    fs::create_dir(dumps.path(1)).unwrap();
    stop.ask();
    let stopped = store(&from, &dumps.path(1), &Increments::default(), false, &stop);
    assert_eq!(stopped.unwrap_err().to_string(), "given up");
    assert!(from.join("pages-1.img").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_memory_comes_back(
        lengths in prop::collection::vec(262_144_usize..400_000, 1..4),
        changes in prop::collection::vec((0_usize..4, prop::collection::vec(0_usize..60, 0..30), 1_u8..), 1..6),
        compress: bool,
    ) {
        let dumps = Dumps::new();
        // Few different blocks, so that files share some.
        let mut files: Vec<Vec<u8>> =
            lengths.iter().map(|length| memory(8, 3).into_iter().cycle().take(*length).collect()).collect();
        for (number, (file, blocks, by)) in changes.into_iter().enumerate() {
            let at = file % files.len();
            change(&mut files[at], blocks, by);
            let names: Vec<String> = (0..files.len()).map(|i| format!("images/pages-{i}.img")).collect();
            let named: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(files.iter().map(Vec::as_slice)).collect();
            dumps.dump(number, &named, number.checked_sub(1), compress);
            dumps.comes_back(number, &named);
        }
    }
}
