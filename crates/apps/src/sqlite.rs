//! The file operations of SQLite transactions, as its pager executes them (sqlite.org/atomiccommit.html and wal.html; `pager.c`, `wal.c`
//! and `os_unix.c` of SQLite). In this model, the pager's cache keeps all pages that were read or written.

use std::collections::BTreeSet;

use emmclab_host::{FileId, FileOp, FolderId, MountId};

use crate::program::{SqliteDatabase, SqliteJournalMode, SqliteSyncCall, SqliteSynchronous};
use crate::random_draws::ThreadDraws;

/// Size in bytes of a rollback journal's header, which occupies a 512-byte sector. Its first 12 bytes contain the number of records.
const JOURNAL_HEADER: u64 = 512;
const COUNT_BYTES: u64 = 12;
const HEADER_IN_USE: u64 = 28;
/// Size of the header of a write-ahead log, in bytes.
const WAL_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;

#[derive(Debug)]
pub(crate) struct SqliteState {
    file: FileId,
    journal: FileId,
    folder: (MountId, FolderId),
    page: u64,
    mode: SqliteJournalMode,
    synchronous: SqliteSynchronous,
    data_only: bool,
    checkpoint: u64,
    /// Number of pages in the database file.
    pages: u64,
    working_set_pages: u64,
    journal_exists: bool,
    /// Number of frames in the write-ahead log since its last restart.
    frames: u64,
    logged: BTreeSet<u64>,
    cached_pages: PageNumberSet,
    /// The pages of the current transaction. The buffer is reused.
    touched: Vec<u64>,
    marks: PageNumberSet,
}

#[derive(Debug, Default)]
struct PageNumberSet(Vec<u64>);

impl PageNumberSet {
    /// Adds a page number. Returns false if the set already contained it.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    fn remove(&mut self, number: u64) {
        if let Some(word) = self.0.get_mut((number / 64) as usize) {
            *word &= !(1 << (number % 64));
        }
    }
}

impl SqliteState {
    pub(crate) fn new(database: &SqliteDatabase, file: FileId, journal: FileId, folder: (MountId, FolderId)) -> Self {
        let page = database.page_size.0;
        let pages = database.size.0 / page;
        Self {
            file,
            journal,
            folder,
            page,
            mode: database.journal_mode,
            synchronous: database.synchronous,
            data_only: database.sync_call == SqliteSyncCall::Fdatasync,
            checkpoint: u64::from(database.checkpoint_pages),
            pages,
            working_set_pages: database.working_set.map_or(pages, |size| (size.0 / page).clamp(2, pages)),
            journal_exists: false,
            frames: 0,
            logged: BTreeSet::new(),
            cached_pages: PageNumberSet::default(),
            touched: Vec::new(),
            marks: PageNumberSet::default(),
        }
    }

    /// Appends the operations of a query that reads `pages` pages.
    pub(crate) fn query(&mut self, pages: u64, draws: &mut ThreadDraws, out: &mut impl Extend<FileOp>) {
        for _ in 0..pages {
            let page = 1 + draws.below(self.working_set_pages - 1);
            self.look_at(page, out);
        }
    }

    /// Appends the operations of a transaction that changes `pages` pages besides the first one, and adds `new_pages`.
    pub(crate) fn transaction(&mut self, pages: u64, new_pages: u64, draws: &mut ThreadDraws, out: &mut impl Extend<FileOp>) {
        self.choose(pages, draws);
        if self.mode == SqliteJournalMode::Wal {
            self.log_pages(new_pages, out);
            return;
        }
        // Every transaction also changes the first database page, which contains the file change counter.
        self.touched.push(0);
        self.touched.sort_unstable();
        self.look_at_touched(out);
        self.begin_journal(out);
        for page in self.touched.iter().copied().chain(self.pages..self.pages + new_pages) {
            out.extend([write(self.file, page * self.page, self.page)]);
        }
        self.add_pages(new_pages);
        self.sync(SqliteSynchronous::Normal, self.file, out);
        self.end_journal(out);
    }

    /// Selects different pages at random, but not the first page of the file.
    fn choose(&mut self, pages: u64, draws: &mut ThreadDraws) {
        self.touched.clear();
        let there = self.working_set_pages - 1;
        if pages >= there {
            self.touched.extend(1..=there);
            return;
        }
        while (self.touched.len() as u64) < pages {
            let page = 1 + draws.below(there);
            if self.marks.insert(page) {
                self.touched.push(page);
            }
        }
        for page in &self.touched {
            self.marks.remove(*page);
        }
    }

    fn look_at_touched(&mut self, out: &mut impl Extend<FileOp>) {
        let touched = std::mem::take(&mut self.touched);
        for page in &touched {
            self.look_at(*page, out);
        }
        self.touched = touched;
    }

    /// Reads a page if it is not in the pager's cache.
    fn look_at(&mut self, page: u64, out: &mut impl Extend<FileOp>) {
        if self.cached_pages.insert(page) {
            out.extend([FileOp::Read { file: self.file, offset: page * self.page, bytes: self.page }]);
        }
    }

    /// Adds new pages to the database file. If the working set is the whole file, the working set grows, too.
    fn add_pages(&mut self, new_pages: u64) {
        (self.pages..self.pages + new_pages).for_each(|page| {
            self.cached_pages.insert(page);
        });
        if self.working_set_pages == self.pages {
            self.working_set_pages += new_pages;
        }
        self.pages += new_pages;
    }

    /// Syncs a file if the `synchronous` setting is at least as strict as `least`.
    fn sync(&self, least: SqliteSynchronous, file: FileId, out: &mut impl Extend<FileOp>) {
        if self.synchronous >= least {
            out.extend([FileOp::Fsync { file, data_only: self.data_only }]);
        }
    }

    /// Writes the old contents of the pages to the rollback journal and makes it durable.
    fn begin_journal(&mut self, out: &mut impl Extend<FileOp>) {
        if self.mode == SqliteJournalMode::Off {
            return;
        }
        let created = !self.journal_exists;
        if created {
            out.extend([FileOp::Open { file: self.journal, create: true }]);
            self.journal_exists = true;
        }
        out.extend([write(self.journal, 0, JOURNAL_HEADER)]);
        let mut at = JOURNAL_HEADER;
        for _ in &self.touched {
            // SQLite writes the page number, the page and its checksum with a separate call each.
            for bytes in [4, self.page, 4] {
                out.extend([write(self.journal, at, bytes)]);
                at += bytes;
            }
        }
        // The page records of the rollback journal must be durable before their number is written to its header.
        self.sync(SqliteSynchronous::Full, self.journal, out);
        if created && self.synchronous == SqliteSynchronous::Full {
            self.sync_folder(out);
        }
        out.extend([write(self.journal, 0, COUNT_BYTES)]);
        self.sync(SqliteSynchronous::Normal, self.journal, out);
        if created && self.synchronous == SqliteSynchronous::Normal {
            self.sync_folder(out);
        }
    }

    /// Makes the folder entry of a new journal durable when the journal is first synced.
    fn sync_folder(&self, out: &mut impl Extend<FileOp>) {
        let (mount, folder) = self.folder;
        out.extend([FileOp::FsyncFolder { mount, folder }]);
    }

    /// Ends the transaction by invalidating the journal, so that the transaction is not rolled back.
    fn end_journal(&mut self, out: &mut impl Extend<FileOp>) {
        match self.mode {
            SqliteJournalMode::Delete => {
                out.extend([FileOp::Close { file: self.journal }, FileOp::Unlink { file: self.journal }]);
                self.journal_exists = false;
            }
            SqliteJournalMode::Truncate => {
                out.extend([FileOp::Truncate { file: self.journal, bytes: 0 }]);
                self.sync(SqliteSynchronous::Full, self.journal, out);
            }
            SqliteJournalMode::Persist => {
                out.extend([write(self.journal, 0, HEADER_IN_USE)]);
                self.sync(SqliteSynchronous::Normal, self.journal, out);
            }
            SqliteJournalMode::Wal | SqliteJournalMode::Off => {}
        }
    }

    /// Appends the changed pages to the write-ahead log. If the log has enough frames, a checkpoint writes its pages to the database file.
    fn log_pages(&mut self, new_pages: u64, out: &mut impl Extend<FileOp>) {
        if new_pages > 0 {
            // The first database page contains the database size, so it changes when the file grows.
            self.touched.push(0);
        }
        self.touched.sort_unstable();
        self.look_at_touched(out);
        self.touched.extend(self.pages..self.pages + new_pages);
        self.add_pages(new_pages);
        if !self.journal_exists {
            out.extend([FileOp::Open { file: self.journal, create: true }]);
            self.journal_exists = true;
        }
        if self.frames == 0 {
            out.extend([write(self.journal, 0, WAL_HEADER)]);
            self.sync(SqliteSynchronous::Normal, self.journal, out);
        }
        for page in &self.touched {
            let at = WAL_HEADER + self.frames * (FRAME_HEADER + self.page);
            out.extend([write(self.journal, at, FRAME_HEADER), write(self.journal, at + FRAME_HEADER, self.page)]);
            self.frames += 1;
            self.logged.insert(*page);
        }
        self.sync(SqliteSynchronous::Full, self.journal, out);
        if self.frames >= self.checkpoint {
            self.sync(SqliteSynchronous::Normal, self.journal, out);
            for page in &self.logged {
                out.extend([write(self.file, page * self.page, self.page)]);
            }
            self.sync(SqliteSynchronous::Normal, self.file, out);
            self.logged.clear();
            self.frames = 0;
        }
    }
}

fn write(file: FileId, offset: u64, bytes: u64) -> FileOp {
    FileOp::Write { file, offset, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::AppProgram;

    fn sqlite(settings: &str) -> SqliteState {
        let text = format!(
            "name = \"a\"\nabout = \"\"\nsource = \"\"\nuser_waits_for = \"t\"\n[[thread]]\nname = \"t\"\nsteps = []\n\
             [[database]]\nname = \"d\"\npartition = \"p\"\nsize = \"400KB\"\n{settings}"
        );
        let program = AppProgram::from_toml(&text).unwrap();
        SqliteState::new(&program.databases[0], FileId(0), FileId(1), (MountId(0), FolderId(0)))
    }

    /// Describes the file operations of a transaction as text. Reads are omitted; writes to one file are counted.
    fn words(database: &mut SqliteState, pages: u64, new_pages: u64) -> String {
        let mut out = Vec::new();
        database.transaction(pages, new_pages, &mut ThreadDraws::of_thread(1, 0), &mut out);
        let mut words: Vec<(String, u64)> = Vec::new();
        let name = |file: FileId| ["db", "journal"][file.0 as usize];
        for operation in out {
            let word = match operation {
                FileOp::Read { .. } => continue,
                FileOp::Write { file, .. } => format!("write {}", name(file)),
                FileOp::Fsync { file, .. } => format!("sync {}", name(file)),
                FileOp::Open { .. } => "open".to_owned(),
                FileOp::Close { .. } => "close".to_owned(),
                FileOp::Unlink { .. } => "unlink".to_owned(),
                FileOp::Truncate { bytes, .. } => format!("truncate {bytes}"),
                FileOp::FsyncFolder { .. } => "sync folder".to_owned(),
                other => panic!("{other:?}"),
            };
            match words.last_mut() {
                Some((last, count)) if *last == word => *count += 1,
                _ => words.push((word, 1)),
            }
        }
        let words: Vec<_> = words.iter().map(|(word, count)| format!("{word} {count}")).collect();
        words.join(", ").replace(" 1,", ",").trim_end_matches(" 1").to_owned()
    }

    #[test]
    fn a_rollback_journal_is_durable_twice_before_the_database_is_touched() {
        let mut database = sqlite("");
        let first = "open, write journal 10, sync journal, sync folder, write journal, sync journal, \
                     write db 3, sync db, close, unlink";
        assert_eq!(words(&mut database, 2, 0), first);
        assert_eq!(words(&mut database, 2, 0), first, "each transaction makes the journal anew");
        let normal = words(&mut sqlite("synchronous = \"normal\""), 2, 0);
        assert_eq!(
            normal,
            first.replace("10, sync journal, sync folder, write journal, sync journal", "11, sync journal, sync folder")
        );
        assert!(!words(&mut sqlite("synchronous = \"off\""), 2, 0).contains("sync"));
    }

    #[test]
    fn a_journal_that_stays_is_cut_or_zeroed_and_its_folder_is_synced_once() {
        let mut truncating = sqlite("journal_mode = \"truncate\"");
        assert!(words(&mut truncating, 1, 0).ends_with("sync db, truncate 0, sync journal"));
        assert!(!words(&mut truncating, 1, 0).contains("folder"));
        let mut persisting = sqlite("journal_mode = \"persist\"");
        assert!(words(&mut persisting, 1, 0).ends_with("sync db, write journal, sync journal"));
        assert_eq!(words(&mut sqlite("journal_mode = \"off\""), 1, 2), "write db 4, sync db");
    }

    #[test]
    fn new_pages_are_written_and_not_journalled() {
        assert!(words(&mut sqlite(""), 1, 5).contains("write journal 7, sync journal"));
        assert!(words(&mut sqlite(""), 1, 5).contains("write db 7"));
    }

    #[test]
    fn a_write_ahead_log_is_synced_once_and_goes_to_the_database_at_its_checkpoint() {
        let mut full = sqlite("journal_mode = \"wal\"\ncheckpoint_pages = 6");
        assert_eq!(words(&mut full, 2, 0), "open, write journal, sync journal, write journal 4, sync journal");
        assert_eq!(words(&mut full, 2, 0), "write journal 4, sync journal");
        let third = words(&mut full, 2, 0);
        assert!(third.starts_with("write journal 4, sync journal 2, write db"), "{third}");
        assert!(third.ends_with("sync db"), "{third}");
        assert!(words(&mut full, 1, 0).starts_with("write journal, sync journal, write journal 2"), "it begins anew");
        let mut normal = sqlite("journal_mode = \"wal\"\nsynchronous = \"normal\"");
        words(&mut normal, 2, 0);
        assert_eq!(words(&mut normal, 2, 0), "write journal 4", "durable at the checkpoint only");
    }

    #[test]
    fn the_pager_reads_a_page_once() {
        let mut database = sqlite("working_set = \"40KB\"");
        let mut out = Vec::new();
        let mut draws = ThreadDraws::of_thread(5, 0);
        database.query(1000, &mut draws, &mut out);
        assert_eq!(out.len(), 9, "ten pages are in use, the first is not looked at");
        out.clear();
        database.transaction(3, 0, &mut draws, &mut out);
        let reads = out.iter().filter(|operation| matches!(operation, FileOp::Read { .. })).count();
        assert_eq!(reads, 1, "the first page");
    }

    #[test]
    fn more_pages_than_there_are_change_all_of_them() {
        assert!(words(&mut sqlite(""), 100_000, 0).contains("write db 100, sync db"));
    }
}
