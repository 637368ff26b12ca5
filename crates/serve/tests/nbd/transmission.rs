//! Commands, flags and errors of the transmission phase.

use std::io::Write;
use std::sync::Arc;

use emmclab_base::CommandFlags;
use emmclab_serve::nbd::NbdExportOptions;
use emmclab_serve::{BlockAction, BlockDevice, BlockDeviceLimits, RequestFailure};

use crate::devices::TestDevice;
use crate::support::{
    CACHE, Client, DF, DISC, FAST_ZERO, FLUSH, FUA, NO_HOLE, READ, REQ_ONE, STATUS, TRIM, WRITE, ZEROES, header, memory, options,
    pattern, served,
};

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ENOTSUP: u32 = 95;

const SIZE: u64 = 1 << 20;

#[test]
fn each_broken_rule_has_the_error_of_the_specification() {
    for structured in [false, true] {
        let mut client = Client::on(memory(SIZE / 512), structured);
        let too_long = if structured { EOVERFLOW } else { EINVAL };
        let cases = [
            (READ, 0, SIZE, 512, EINVAL),
            (READ, 0, SIZE - 512, 1024, EINVAL),
            (READ, 0, u64::MAX - 511, 512, EINVAL),
            (READ, 0, 1, 512, EINVAL),
            (READ, 0, 0, 513, EINVAL),
            (READ, 0, 0, 0, EINVAL),
            (READ, NO_HOLE, 0, 512, EINVAL),
            (READ, 1 << 15, 0, 512, EINVAL),
            (READ, FUA, 0, 512, 0),
            (READ, DF, 0, 512, if structured { 0 } else { EINVAL }),
            (TRIM, 0, SIZE, 512, EINVAL),
            (TRIM, NO_HOLE, 0, 512, EINVAL),
            (TRIM, FUA, 0, 512, 0),
            (ZEROES, 0, SIZE, 512, ENOSPC),
            (ZEROES, 0, SIZE - 512, u32::MAX - 511, ENOSPC),
            (ZEROES, 0, 100, 512, EINVAL),
            (ZEROES, NO_HOLE | FUA, 0, 512, 0),
            (ZEROES, FAST_ZERO, 0, 512, 0),
            (ZEROES, FAST_ZERO | NO_HOLE, 0, 512, ENOTSUP),
            (ZEROES, FAST_ZERO | FUA, 0, 512, ENOTSUP),
            (CACHE, 0, 0, SIZE as u32, 0),
            (CACHE, 0, 0, SIZE as u32 + 512, EINVAL),
            (CACHE, DF, 0, 512, EINVAL),
            (FLUSH, FUA, 0, 0, 0),
            (FLUSH, 0, 512, 0, EINVAL),
            (FLUSH, 0, 0, 512, EINVAL),
            (FLUSH, REQ_ONE, 0, 0, EINVAL),
            (STATUS, 0, SIZE, 512, EINVAL),
            (STATUS, REQ_ONE, 0, 512, if structured { 0 } else { EINVAL }),
            (8, 0, 0, 512, EINVAL),
            (u16::MAX, 0, 0, 0, EINVAL),
        ];
        for (kind, flags, offset, length, error) in cases {
            let reply = client.ask(kind, flags, offset, length);
            assert_eq!(reply.error, error, "command {kind}, flags {flags}, {length} bytes at {offset}");
        }
        for (offset, length, error) in [(SIZE, 512, ENOSPC), (0, 100, EINVAL), (7, 512, EINVAL), (0, 0, EINVAL)] {
            assert_eq!(client.write(0, offset, &vec![1; length]), error, "{length} bytes at {offset}");
        }
        let mut large = Client::on(memory(1 << 20), structured);
        assert_eq!(large.ask(READ, 0, 0, (32 << 20) + 512).error, too_long);
        assert_eq!(large.write(0, 0, &vec![1; (32 << 20) + 512]), EINVAL, "drained, and the client is told");
        assert_eq!(large.write(0, 0, &pattern(1, 32 << 20)), 0);
        assert_eq!(large.ask(READ, 0, 0, 32 << 20).data, pattern(1, 32 << 20));
    }
}

#[test]
fn a_write_of_senseless_length_and_a_request_without_magic_end_the_connection() {
    for request in [header(WRITE, 0, 1, 0, u32::MAX), vec![0; 28]] {
        let mut client = Client::on(memory(8), true);
        client.stream.write_all(&request).unwrap();
        client.closed();
    }
}

#[test]
fn a_read_only_export_refuses_changes() {
    let options = NbdExportOptions { read_only: true, ..options() };
    let mut client = Client::greet(served(memory(8), options).0);
    let flags = client.option(7, &[0; 6])[0].1[10..].to_vec();
    assert_eq!(flags, [0x01, 0x0f]);
    for kind in [TRIM, ZEROES] {
        assert_eq!(client.ask(kind, 0, 0, 512).error, EPERM);
    }
    assert_eq!(client.write(0, 0, &[1; 512]), EPERM);
    assert_eq!(client.ask(READ, 0, 0, 512).data, [0; 512]);
}

#[test]
fn failures_of_the_device_become_errors_of_the_protocol() {
    let limits = BlockDeviceLimits { max_sectors: 1, write_cache: false, ..memory(8).limits() };
    let failures = [RequestFailure::Invalid, RequestFailure::NoSpace, RequestFailure::Io, RequestFailure::ReadOnly];
    for (failure, error) in failures.into_iter().zip([EINVAL, ENOSPC, EIO, EPERM]) {
        for structured in [false, true] {
            let mut client = Client::on(TestDevice::failing(failure, limits), structured);
            for (kind, flags, length) in [(READ, 0, 512), (READ, 0, 4096), (TRIM, FUA, 4096), (FLUSH, 0, 0)] {
                assert_eq!(client.ask(kind, flags, 0, length).error, error);
            }
            assert_eq!(client.write(0, 0, &[1; 4096]), error);
        }
    }
}

#[test]
fn a_device_without_cache_offers_neither_flush_nor_fua() {
    let limits = BlockDeviceLimits { write_cache: false, ..memory(8).limits() };
    let mut client = Client::greet(served(TestDevice::failing(RequestFailure::Io, limits), options()).0);
    assert_eq!(client.option(7, &[0; 6])[0].1[10..], [0x09, 0x61]);
}

#[test]
fn the_preferred_block_size_is_a_power_of_two() {
    for (preferred_sectors, bytes) in [(0, 512_u32), (1, 512), (24, 16384), (u32::MAX, 1 << 25)] {
        let limits = BlockDeviceLimits { preferred_sectors, ..memory(8).limits() };
        let mut client = Client::greet(served(TestDevice::failing(RequestFailure::Io, limits), options()).0);
        assert_eq!(client.option(6, &[0; 6])[1].1[6..10], bytes.to_be_bytes());
    }
}

#[test]
fn zeros_come_as_holes_and_df_forbids_them() {
    let mut client = Client::on(memory(1 << 14), true);
    let data = pattern(3, 1 << 16);
    assert_eq!(client.write(0, 1 << 16, &data), 0);
    let expected = [&vec![0; 1 << 16][..], &data, &vec![0; 1 << 17]].concat();
    let sparse = client.ask(READ, 0, 0, 1 << 18);
    assert_eq!((sparse.holes, sparse.chunks), (3 << 16, 3));
    assert_eq!(sparse.data, expected);
    let whole = client.ask(READ, DF, 0, 1 << 18);
    assert_eq!((whole.holes, whole.chunks), (0, 1));
    assert_eq!(whole.data, expected);
    assert_eq!(client.ask(READ, 0, 0, 4096).holes, 4096);
}

#[test]
fn requests_are_split_to_what_the_device_takes() {
    for structured in [false, true] {
        for max_sectors in [1, 7, 64] {
            let mut client = Client::on(Arc::new(TestDevice::late(1 << 14, max_sectors)), structured);
            let data = pattern(5, 1 << 20);
            assert_eq!(client.write(FUA, 512, &data), 0);
            assert!(client.ask(READ, 0, 512, 1 << 20).data == data);
            assert_eq!(client.ask(ZEROES, 0, 1024, 1 << 19).error, 0);
            assert_eq!(client.ask(TRIM, 0, 0, 4 << 20).error, 0);
            assert!(client.ask(READ, if structured { DF } else { 0 }, 0, 4 << 20).data == vec![0; 4 << 20]);
        }
    }
}

#[test]
fn pipelined_requests_reach_the_device_before_any_is_complete() {
    let device = TestDevice::held(1 << 11);
    let mut client = Client::on(device.clone(), false);
    let batch: Vec<u8> = (0..32).flat_map(|cookie| header(READ, 0, cookie, 512 * cookie, 512)).collect();
    client.stream.write_all(&batch).unwrap();
    device.wait_for(32);
    device.release();
    let replies: Vec<u8> = client.bytes::<{ 32 * 528 }>().to_vec();
    for (cookie, reply) in replies.chunks(528).enumerate() {
        assert_eq!(reply[8..16], (cookie as u64).to_be_bytes());
    }
}

#[test]
fn the_device_sees_flags_as_modifiers() {
    let device = TestDevice::held(64);
    let mut client = Client::on(device.clone(), false);
    let write = BlockAction::Write(vec![3; 512]);
    let zeroes = |keep_allocated| BlockAction::WriteZeroes { keep_allocated };
    let (none, durable) = (CommandFlags::empty(), CommandFlags::RELIABLE);
    let cases = [
        (WRITE, 0, write.clone(), none),
        (WRITE, FUA, write, durable),
        (ZEROES, 0, zeroes(false), none),
        (ZEROES, NO_HOLE, zeroes(true), none),
        (ZEROES, FUA | NO_HOLE, zeroes(true), durable),
        (ZEROES, FAST_ZERO, zeroes(false), none),
        (TRIM, 0, BlockAction::Discard { secure: false }, none),
        (TRIM, FUA, BlockAction::Discard { secure: false }, durable),
        (READ, FUA, BlockAction::Read, none),
    ];
    for (cookie, (kind, flags, ..)) in cases.iter().enumerate() {
        let data = if *kind == WRITE { &[3; 512][..] } else { &[] };
        client.send(*kind, *flags, cookie as u64, 1024, 512, data);
    }
    client.send(FLUSH, 0, 99, 0, 0, &[]);
    device.wait_for(cases.len() + 1);
    let seen = device.take();
    for ((.., action, modifiers), request) in cases.into_iter().zip(&seen) {
        assert_eq!((request.sector, request.sectors), (2, 1));
        assert_eq!((&request.action, request.modifiers), (&action, modifiers));
    }
    let flush = seen.last().unwrap();
    assert_eq!((&flush.action, flush.sectors), (&BlockAction::Flush, 0));
}

#[test]
fn block_status_tells_allocation() {
    let mut client = Client::on(memory(1 << 14), true);
    assert_eq!(client.write(0, 1 << 16, &pattern(1, 1 << 16)), 0);
    let (hole, data) = ((1 << 16, 3), (1 << 16, 0));
    assert_eq!(client.ask(STATUS, 0, 0, 1 << 18).extents, [hole, data, (1 << 17, 3)]);
    assert_eq!(client.ask(STATUS, REQ_ONE, 0, 1 << 18).extents, [hole]);
    assert_eq!(client.ask(STATUS, 0, 1 << 16, 512).extents, [(512, 0)]);
}

#[test]
fn a_device_that_knows_no_extents_is_allocated() {
    let limits = memory(1 << 24).limits();
    let mut client = Client::on(TestDevice::failing(RequestFailure::Io, limits), true);
    assert_eq!(client.ask(STATUS, 0, 0, u32::MAX - 511).extents, [(u32::MAX - 511, 0)]);
}

#[test]
fn block_status_needs_a_context_for_the_same_name() {
    let mut client = Client::greet(served(memory(8), options()).0);
    client.option(8, &[]);
    let other = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
    assert_eq!(client.option(10, other).len(), 2);
    client.option(7, &[0; 6]);
    client.stream.write_all(&header(STATUS, 0, 1, 0, 512)).unwrap();
    let reply = client.bytes::<26>();
    assert_eq!((&reply[..8], &reply[20..24]), (&b"\x66\x8e\x33\xef\0\x01\x80\x01"[..], &b"\0\0\0\x16"[..]));
}

#[test]
fn goodbye_waits_for_what_is_in_flight() {
    let device = TestDevice::held(8);
    let mut client = Client::on(device.clone(), true);
    client.send(WRITE, 0, 1, 0, 512, &[9; 512]);
    client.send(DISC, 0, 2, 0, 0, &[]);
    device.wait_for(1);
    device.release();
    assert_eq!(client.receive().0, 1);
    client.closed();
}
