//! Prints how fast layers decide and what memory they take: `cargo run --release -p emmclab-layers --example layer_speed`.

use std::time::Instant;

use emmclab_layers::{Answer, Below, Flight, HostRequest, Layer, LayerConfig, Plan, Work, build_stack};
use emmclab_trace::{Op, Result};

/// Resident memory of this process in bytes, from the kernel.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

/// 12 GB, as in the paper, in sectors; and the card.
const BELOW: Below = Below { main: 12 << 21, second: Some(32 << 21) };

fn main() -> Result<()> {
    let advil = || LayerConfig::named("advil").with("second_device", "true");
    drive("pass-through", &LayerConfig::named("pass-through"), 40_000_000, u64::MAX)?;
    for (what, config) in [
        ("advil", advil()),
        ("advil, hot rewritten", advil().with("hot", "rewritten")),
        ("advil, recovery", advil().with("recovery", "true")),
        ("ressd", LayerConfig::named("ressd").with("second_device", "true")),
    ] {
        drive(&format!("{what}, 4 KB writes in 1 GB"), &config, 4_000_000, 1 << 21)?;
        drive(&format!("{what}, 4 KB writes in 12 GB"), &config, 4_000_000, 12 << 21)?;
    }
    Ok(())
}

/// Random 4 KB writes below `span` sectors, each request with the background work that it brings.
fn drive(what: &str, config: &LayerConfig, requests: u64, span: u64) -> Result<()> {
    let mut best = f64::MAX;
    let mut memory = 0;
    let mut counters = Vec::new();
    for _ in 0..3 {
        let before = resident_bytes();
        let mut layers = build_stack(std::slice::from_ref(config), &BELOW)?;
        let layer = &mut *layers[0];
        let mut plan = Plan::default();
        let mut background = Plan::default();
        let flight = Flight::default();
        let units = span.min(BELOW.main) / 8;
        let mut seed = 1_u64;
        let begin = Instant::now();
        for id in 0..requests {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let sector = ((u128::from(seed) * u128::from(units)) >> 64) as u64 * 8;
            let request = HostRequest { id, op: Op::Write, sector, sectors: 8 };
            loop {
                plan.clear();
                if layer.request(&request, &mut plan) == Answer::Run {
                    break;
                }
                work(layer, &flight, &mut background);
            }
            std::hint::black_box(plan.steps());
            // The mover has its turn now and then, as beside a device.
            if id % 64 == 0 {
                work(layer, &flight, &mut background);
            }
        }
        best = best.min(begin.elapsed().as_secs_f64());
        memory = memory.max(resident_bytes().saturating_sub(before));
        counters = layer.counters();
    }
    println!(
        "{what}: {:.2} million requests/s, {:.2} MB more resident",
        requests as f64 / best / 1e6,
        memory as f64 / 1e6
    );
    for (name, count) in counters.iter().filter(|(name, _)| name.contains("map") || name.contains("memory")) {
        println!("    {name} {count}");
    }
    Ok(())
}

fn work(layer: &mut dyn Layer, flight: &Flight, plan: &mut Plan) {
    plan.clear();
    if layer.work(flight, plan) == Work::Run {
        std::hint::black_box(plan.steps());
        layer.worked();
    }
}
