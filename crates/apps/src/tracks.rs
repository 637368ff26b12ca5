//! Draws a run as a picture for Perfetto: what each thread did, and the critical path.

use std::io::{self, Write};

use emmclab_base::Nanos;
use emmclab_perfetto::{Argument, ArgumentValue, SliceRow, TrackSlice, TrackWriter};

use crate::timeline::{CriticalPath, ThreadActivity, ThreadTimeline};

/// Process id of the program in Perfetto; the ids of its threads follow.
const PID: i32 = 1_000;

/// The states of the threads of a run over time.
pub struct ThreadTimes {
    pub(crate) program: String,
    pub(crate) timelines: Vec<ThreadTimeline>,
    pub(crate) names: Vec<String>,
    pub(crate) partitions: Vec<String>,
    /// The thread that the user waits for.
    pub(crate) awaited_thread: u32,
    pub(crate) end: Nanos,
}

impl ThreadTimes {
    /// Draws the program as a process: first the critical path, then its threads.
    ///
    /// # Errors
    /// As the output of `tracks`.
    pub fn draw<W: Write>(&self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        let process = tracks.process(PID, &self.program)?;
        let mut path = SliceRow::new(tracks, process, "critical path");
        let all: Vec<_> = self.timelines.iter().collect();
        let mut drawn = Ok(());
        CriticalPath::of(&all, self.awaited_thread, self.end, &mut |begin, end, doing| {
            if drawn.is_ok() {
                drawn = self.part(tracks, &mut path, (begin, end, doing));
            }
        });
        drawn?;
        for ((tid, name), timeline) in (PID + 1..).zip(&self.names).zip(&self.timelines) {
            let thread = tracks.thread(process, (PID, tid), name)?;
            let mut row = SliceRow::of_thread(tracks, thread, name);
            let parts = timeline.between(Nanos::ZERO, self.end);
            parts.into_iter().try_for_each(|part| self.part(tracks, &mut row, part))?;
        }
        Ok(())
    }

    fn part<W: Write>(
        &self,
        tracks: &mut TrackWriter<W>,
        row: &mut SliceRow,
        (begin, end, doing): (Nanos, Nanos, ThreadActivity),
    ) -> io::Result<()> {
        let Some(state) = doing.state() else { return Ok(()) };
        let text = |name, text| (name, ArgumentValue::Text(text));
        let mut arguments: Vec<Argument<'_>> = Vec::new();
        match doing {
            ThreadActivity::Storage(wait, place) => {
                arguments.push(text("wait", wait.name()));
                if let Some((class, mount)) = place {
                    arguments.push(text("class", class.name()));
                    arguments.push(text("partition", &self.partitions[usize::from(mount.0)]));
                }
            }
            // A thread that still waits at the end may wait for an unknown thread.
            ThreadActivity::Thread(other) => {
                if let Some(name) = self.names.get(other as usize) {
                    arguments.push(text("thread", name));
                }
            }
            ThreadActivity::Running
            | ThreadActivity::Core
            | ThreadActivity::Network
            | ThreadActivity::Think
            | ThreadActivity::Absent => {}
        }
        let arguments = &arguments;
        row.slice(tracks, &TrackSlice { name: state.description(), category: state.name(), begin, end, arguments })
    }
}
