//! Compares random commands on several connections with an array.

use std::sync::Arc;

use emmclab_serve::{BlockDevice, MemoryDevice};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::devices::TestDevice;
use crate::support::{Client, DF, FLUSH, FUA, NO_HOLE, READ, STATUS, TRIM, TestServer, WRITE, ZEROES, pattern};

const CLIENTS: usize = 3;
/// Number of sectors that a client uses at a time, so that no request of another client overlaps.
const REGION: u64 = 600;
const SECTORS: u64 = REGION * CLIENTS as u64;

/// A request in the region of its client, in sectors.
#[derive(Clone, Debug)]
struct Step {
    client: usize,
    kind: u16,
    flags: u16,
    sector: u64,
    sectors: u64,
    seed: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let kinds = prop_oneof![
        4 => (Just(READ), prop_oneof![Just(0), Just(DF), Just(FUA)]),
        4 => (Just(WRITE), prop_oneof![Just(0), Just(FUA)]),
        1 => (Just(TRIM), Just(0_u16)),
        2 => (Just(ZEROES), prop_oneof![Just(0), Just(NO_HOLE), Just(FUA)]),
        1 => (Just(FLUSH), Just(0_u16)),
    ];
    (0..CLIENTS, kinds, 0..REGION, prop_oneof![1..17_u64, 1..REGION], any::<u8>()).prop_map(
        |(client, (kind, flags), sector, sectors, seed)| {
            let sectors = if kind == FLUSH { 0 } else { sectors.min(REGION - sector) };
            Step { client, kind, flags, sector: if kind == FLUSH { 0 } else { sector }, sectors, seed }
        },
    )
}

/// Sends all steps before it reads any reply, then compares the replies; the regions depend on `round`.
fn play(clients: &mut [(Client, bool)], model: &mut [u8], round: usize, steps: &[Step]) {
    let mut expected = vec![Vec::new(); CLIENTS];
    for step in steps {
        let (client, structured) = &mut clients[step.client];
        let region = (step.client + round) % CLIENTS;
        let first = if step.kind == FLUSH { 0 } else { region as u64 * REGION + step.sector };
        let (offset, length) = (first * 512, step.sectors * 512);
        let range = offset as usize..(offset + length) as usize;
        let data = if step.kind == WRITE { pattern(step.seed, length as usize) } else { Vec::new() };
        let flags = if *structured { step.flags } else { step.flags & !DF };
        let cookie = expected[step.client].len() as u64;
        client.send(step.kind, flags, cookie, offset, length as u32, &data);
        match step.kind {
            WRITE => model[range.clone()].copy_from_slice(&data),
            TRIM | ZEROES => model[range.clone()].fill(0),
            _ => {}
        }
        expected[step.client].push((step.kind == READ).then(|| model[range].to_vec()));
    }
    for ((client, _), expected) in clients.iter_mut().zip(expected) {
        let mut open = expected.len();
        while open > 0 {
            let (cookie, reply) = client.receive();
            let wanted = &expected[cookie as usize];
            assert_eq!(reply.error, 0);
            assert!(wanted.as_ref().is_none_or(|data| *data == reply.data), "round {round}, request {cookie}");
            open -= 1;
        }
    }
    // No request is in flight.
    for (client, _) in clients.iter_mut().filter(|(_, structured)| *structured) {
        let length = SECTORS * 512;
        let extents = client.ask(STATUS, 0, 0, length as u32).extents;
        let mut at = 0;
        for (bytes, flags) in extents {
            let end = at + bytes as usize;
            assert!(flags == 0 || model[at..end].iter().all(|byte| *byte == 0), "a hole with data");
            at = end;
        }
        assert!(at as u64 <= length && at > 0);
    }
}

fn check(device: Arc<dyn BlockDevice>, rounds: &[Vec<Step>]) {
    let server = TestServer::on(device);
    let mut clients: Vec<_> = [true, false, true].map(|structured| (server.client(structured), structured)).into();
    let mut model = vec![0; (SECTORS * 512) as usize];
    for (round, steps) in rounds.iter().enumerate() {
        play(&mut clients, &mut model, round, steps);
    }
    drop(clients);
    server.server.stop();
    assert!(!server.socket.exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(24), ..ProptestConfig::default() })]

    #[test]
    fn data_agrees_with_an_array(rounds in vec(vec(step(), 1..40), 1..6)) {
        check(Arc::new(MemoryDevice::new(SECTORS)), &rounds);
    }

    #[test]
    fn data_agrees_where_completions_come_late_and_out_of_order(
        rounds in vec(vec(step(), 1..40), 1..4),
        max_sectors in prop_oneof![Just(1_u32), 2..64_u32, Just(1024)],
    ) {
        check(Arc::new(TestDevice::late(SECTORS, max_sectors)), &rounds);
    }
}
