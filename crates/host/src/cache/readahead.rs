//! The readahead window of a file, with the rules of `mm/readahead.c`.

/// The window of pages that are read ahead of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileReadAhead {
    start: u64,
    size: u64,
    /// The next window is read when this many pages of the window are left.
    left: u64,
    previous: Option<u64>,
}

/// A run of pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadAheadWindow {
    pub first: u64,
    pub pages: u64,
    /// The page whose use starts the read of the next window.
    pub marker: Option<u64>,
}

impl FileReadAhead {
    /// Returns the window to read for a missing page. `asked` pages are wanted from there, `history` pages directly before it are in
    /// memory, and `most` is the largest window in pages.
    pub fn window_for_missing(&mut self, page: u64, asked: u64, history: u64, most: u64) -> ReadAheadWindow {
        let sequential = page == 0 || self.previous.is_some_and(|previous| page == previous || page == previous + 1);
        let expected = self.size > 0 && (page == self.start + self.size - self.left || page == self.start + self.size);
        if expected && page != 0 {
            return self.next(most);
        }
        if !sequential && asked <= most {
            if history <= asked {
                // A random page: nothing is known about the following ones.
                return ReadAheadWindow { first: page, pages: asked.max(1), marker: None };
            }
            // The pages before it are in memory, which suggests a sequential reader; if they start at the beginning of the file, they count
            // twice.
            let history = if history >= page { 2 * history } else { history };
            (self.start, self.size, self.left) = (page, (history + asked).min(most).max(1), 1);
            return self.window();
        }
        let size = initial(asked.max(1), most);
        (self.start, self.size) = (page, size);
        self.left = if size > asked { size - asked } else { size };
        self.window()
    }

    /// Returns the next window after a marked page was used. If the mark belongs to an older window, as with interleaved readers, the
    /// window starts at `missing`, the first missing page after it.
    pub fn window_for_marked(&mut self, page: u64, missing: u64, most: u64) -> ReadAheadWindow {
        if page == self.start + self.size - self.left {
            return self.next(most);
        }
        (self.start, self.size) = (missing, grown(missing - page + 1, most));
        self.left = self.size;
        self.window()
    }

    fn next(&mut self, most: u64) -> ReadAheadWindow {
        self.start += self.size;
        self.size = grown(self.size, most);
        self.left = self.size;
        self.window()
    }

    /// Records the use of a page.
    pub fn record_use(&mut self, page: u64) {
        self.previous = Some(page);
    }

    fn window(&self) -> ReadAheadWindow {
        let marker = (self.left > 0).then(|| self.start + self.size - self.left);
        ReadAheadWindow { first: self.start, pages: self.size, marker }
    }
}

fn initial(asked: u64, most: u64) -> u64 {
    let size = asked.next_power_of_two();
    let size = if size <= most / 32 {
        size * 4
    } else if size <= most / 4 {
        size * 2
    } else {
        most
    };
    size.max(1)
}

fn grown(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        size * 4
    } else if size <= most / 2 {
        size * 2
    } else {
        most.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_a_sequential_reader_grow_from_16_kb_to_the_largest() {
        let mut ahead = FileReadAhead::default();
        let first = ahead.window_for_missing(0, 1, 0, 32);
        assert_eq!(first, ReadAheadWindow { first: 0, pages: 4, marker: Some(1) });
        let (mut sizes, mut marker) = (Vec::new(), first.marker);
        for _ in 0..5 {
            let window = ahead.window_for_marked(marker.unwrap(), 0, 32);
            sizes.push(window.pages);
            marker = window.marker;
        }
        assert_eq!(sizes, [8, 16, 32, 32, 32]);
    }

    #[test]
    fn a_page_at_random_is_read_alone() {
        let mut ahead = FileReadAhead::default();
        ahead.record_use(3);
        assert_eq!(ahead.window_for_missing(100, 2, 2, 32), ReadAheadWindow { first: 100, pages: 2, marker: None });
    }

    #[test]
    fn a_page_behind_others_in_memory_is_read_with_as_many_more() {
        let mut ahead = FileReadAhead::default();
        ahead.record_use(3);
        assert_eq!(
            ahead.window_for_missing(100, 1, 2, 32),
            ReadAheadWindow { first: 100, pages: 3, marker: Some(102) }
        );
        ahead.record_use(500);
        assert_eq!(ahead.window_for_missing(8, 1, 8, 32).pages, 17);
    }

    #[test]
    fn a_mark_of_an_older_window_reads_on_behind_what_is_in_memory() {
        let mut ahead = FileReadAhead::default();
        ahead.window_for_missing(0, 1, 0, 32);
        assert_eq!(ahead.window_for_marked(100, 103, 32), ReadAheadWindow { first: 103, pages: 8, marker: Some(103) });
    }

    #[test]
    fn without_read_ahead_a_window_has_what_was_asked() {
        let mut ahead = FileReadAhead::default();
        assert_eq!(ahead.window_for_missing(0, 1, 0, 0).pages, 1);
        assert_eq!(ahead.window_for_missing(9, 1, 0, 0).pages, 1);
    }
}
