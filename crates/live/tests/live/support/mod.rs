//! A client of a live device.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use emmclab_base::Modifiers;
use emmclab_live::{LiveDevice, LiveOptions, Pace};
use emmclab_replay::ReplayOptions;
use emmclab_serve::{Action, BlockDevice, BlockRequest, Completion, Completions, Failure};

const SECTOR: usize = 512;

/// A device that nobody paces, checked, without an image or a record.
pub fn options() -> LiveOptions {
    LiveOptions {
        layers: Vec::new(),
        second: None,
        second_image: None,
        pace: Pace::Free,
        think: false,
        image: None,
        replay: ReplayOptions::default(),
        check: true,
        record: None,
        log: None,
    }
}

/// Takes completions, from any thread.
#[derive(Default)]
struct Inbox {
    completed: Mutex<Vec<Completion>>,
    came: Condvar,
}

impl Completions for Inbox {
    fn complete(&self, completed: &mut Vec<Completion>) {
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

    pub fn send(&self, requests: Vec<BlockRequest>) {
        let to: Arc<dyn Completions> = self.inbox.clone();
        self.device.submit(&mut { requests }, &to);
    }

    /// Waits for so many completions.
    pub fn take(&self, count: usize) -> Vec<Completion> {
        let mut completed = self.inbox.completed.lock().unwrap();
        while completed.len() < count {
            let (guard, waited) = self.inbox.came.wait_timeout(completed, Duration::from_mins(10)).unwrap();
            completed = guard;
            assert!(!waited.timed_out(), "a request never completed");
        }
        completed.drain(..).collect()
    }

    pub fn ask(
        &self,
        action: Action,
        sector: u64,
        sectors: u32,
        modifiers: Modifiers,
    ) -> Result<Vec<u8>, Failure> {
        self.send(vec![BlockRequest { tag: 7, action, sector, sectors, modifiers }]);
        let mut completed = self.take(1);
        assert_eq!((completed.len(), completed[0].tag), (1, 7));
        completed.remove(0).outcome
    }

    pub fn write(&self, sector: u64, data: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let sectors = (data.len() / SECTOR) as u32;
        self.ask(Action::Write(data), sector, sectors, Modifiers::empty())
    }

    pub fn read(&self, sector: u64, sectors: u32) -> Vec<u8> {
        self.ask(Action::Read, sector, sectors, Modifiers::empty()).unwrap()
    }

    pub fn flush(&self) -> Result<Vec<u8>, Failure> {
        self.ask(Action::Flush, 0, 0, Modifiers::empty())
    }
}
