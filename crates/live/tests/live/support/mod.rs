//! A client of a live device.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use emmclab_base::CommandFlags;
use emmclab_live::{ClockPace, LiveDevice, LiveOptions};
use emmclab_replay::ReplayOptions;
use emmclab_serve::{BlockAction, BlockDevice, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};

const SECTOR: usize = 512;

/// Options of a device on a free clock, with checks, without an image or a recording.
pub fn options() -> LiveOptions {
    LiveOptions {
        layers: Vec::new(),
        second: None,
        second_image: None,
        pace: ClockPace::Free,
        think: false,
        image: None,
        replay: ReplayOptions::default(),
        check: true,
        record: None,
        log: None,
    }
}

/// Collects completions from any thread.
#[derive(Default)]
struct Inbox {
    completed: Mutex<Vec<ServedCompletion>>,
    came: Condvar,
}

impl CompletionReceiver for Inbox {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        self.completed.lock().unwrap().append(completed);
        self.came.notify_all();
    }
}

/// A client of a live device.
pub struct Client<'a> {
    device: &'a LiveDevice,
    inbox: Arc<Inbox>,
}

impl<'a> Client<'a> {
    pub fn of(device: &'a LiveDevice) -> Self {
        Self { device, inbox: Arc::default() }
    }

    pub fn send(&self, requests: Vec<ServedRequest>) {
        let to: Arc<dyn CompletionReceiver> = self.inbox.clone();
        self.device.submit(&mut { requests }, &to);
    }

    /// Waits for `count` completions.
    pub fn take(&self, count: usize) -> Vec<ServedCompletion> {
        let mut completed = self.inbox.completed.lock().unwrap();
        while completed.len() < count {
            let (guard, waited) = self.inbox.came.wait_timeout(completed, Duration::from_mins(10)).unwrap();
            completed = guard;
            assert!(!waited.timed_out(), "a request never completed");
        }
        completed.drain(..).collect()
    }

    pub fn ask(
        &self, action: BlockAction, sector: u64, sectors: u32, modifiers: CommandFlags,
    ) -> Result<Vec<u8>, RequestFailure> {
        self.send(vec![ServedRequest { tag: 7, action, sector, sectors, modifiers }]);
        let mut completed = self.take(1);
        assert_eq!((completed.len(), completed[0].tag), (1, 7));
        completed.remove(0).outcome
    }

    pub fn write(&self, sector: u64, data: Vec<u8>) -> Result<Vec<u8>, RequestFailure> {
        let sectors = (data.len() / SECTOR) as u32;
        self.ask(BlockAction::Write(data), sector, sectors, CommandFlags::empty())
    }

    pub fn read(&self, sector: u64, sectors: u32) -> Vec<u8> {
        self.ask(BlockAction::Read, sector, sectors, CommandFlags::empty()).unwrap()
    }

    pub fn flush(&self) -> Result<Vec<u8>, RequestFailure> {
        self.ask(BlockAction::Flush, 0, 0, CommandFlags::empty())
    }
}
