//! Invalid settings are refused, all at once, with a hint.

use emmclab_base::ErrorClass;
use emmclab_layers::{DiskZones, DisksBelow, LayerConfig, build_stack, layers};

const BELOW: DisksBelow = DisksBelow::new(1 << 22, Some(1 << 20));

fn refusal(stack: &[LayerConfig], below: &DisksBelow) -> String {
    let Err(error) = build_stack(stack, below) else { panic!("{stack:?} was accepted") };
    assert_eq!(error.kind(), ErrorClass::Config);
    assert!(error.hint_text().is_some(), "{error}");
    error.to_string()
}

/// Checks that a setting of a layer is refused, with `said` in the message.
fn is_refused(layer: LayerConfig, (key, value, said): (&str, &str, &str), below: &DisksBelow) {
    let text = refusal(&[layer.with(key, value)], below);
    assert!(text.contains(said), "{key}={value}: {text}");
}

#[test]
fn each_by_itself() {
    for setting in [
        ("reserved", "4MB", "two clustered blocks"),
        ("reserved", "8193KB", "multiple of 8KB"),
        ("reserved", "4GB", "ends after the end of the device"),
        ("reserved", "many", "is not a size"),
        ("reserved_at", "1KB", "multiple of 4KB"),
        ("reserved_at", "2000MB", "ends after the end of the device"),
        ("original", "1900MB", "overlap"),
        ("original", "3000MB", "within the device"),
        ("original", "0", "within the device"),
        ("clustered_page", "6KB", "multiple of 4KB"),
        ("clustered_page", "0", "multiple of 4KB"),
        ("clustered_block", "100KB", "multiple of the clustered page"),
        ("clustered_block", "2GB", "two clustered blocks"),
        ("small", "0", "multiple of 512"),
        ("small", "8MB", "up to the clustered block"),
        ("hot_start_pct", "80", "at least the others"),
        ("hot_most_pct", "100", "log region"),
        ("hot_most_pct", "101", "at most 100"),
        ("block_padding_over", "128", "128 clustered pages"),
        ("read_through", "8MB", "up to the clustered block"),
        ("hot_invalidated", "some", "unknown variant"),
        ("hot", "lukewarm", "unknown variant"),
        ("checkpoint", "16MB", "`recovery` is false"),
        ("mover", "never", "unknown variant"),
        ("hot_step_pct", "-2", "invalid value"),
        ("reservd", "256MB", "unknown setting"),
    ] {
        is_refused(LayerConfig::named("advil"), setting, &BELOW);
    }
    for value in ["4KB", "17KB", "512MB"] {
        let recovering = LayerConfig::named("advil").with("recovery", "true");
        is_refused(recovering, ("checkpoint", value, "from `small` plus 4KB"), &BELOW);
    }
    is_refused(LayerConfig::named("ressd"), ("hot", "paper", "unknown setting `hot`"), &BELOW);
    let alone = DisksBelow { second: None, ..BELOW };
    is_refused(LayerConfig::named("advil"), ("second_device", "true", "there is no second device"), &alone);
    let pair = || LayerConfig::named("pair");
    assert!(refusal(&[pair()], &alone).contains("there is no second device"), "a pair of one does nothing");
    assert!(build_stack(&[pair().with("routing", "internal")], &alone).is_ok());
    is_refused(pair().with("routing", "by_file"), ("border", "3GB", "beyond the end"), &BELOW);
    is_refused(pair(), ("routing", "by_name", "unknown variant"), &BELOW);
}

#[test]
fn of_an_nvm_buffer() {
    for setting in [
        ("size", "6KB", "multiple of 4KB"),
        ("size", "4GB", "its disk has"),
        ("size", "8KB", "or more"),
        ("longest", "0", "multiple of 512"),
        ("longest", "1GB", "or more"),
        ("run", "1KB", "from `longest`"),
        ("low_pct", "75", "must be less"),
        ("high_pct", "101", "at most 100"),
        ("depth", "0", "1 to 1024"),
        ("sise", "1MB", "unknown setting"),
    ] {
        is_refused(LayerConfig::named("nvm-buffer"), setting, &BELOW);
    }
    let alone = refusal(&[LayerConfig::named("nvm-buffer")], &DisksBelow { second: None, ..BELOW });
    assert!(alone.contains("no second device") && !alone.contains("`size`"), "{alone}");
}

#[test]
fn all_at_once() {
    let layer = LayerConfig::named("advil").with("reserved", "12KB").with("clustered_page", "5KB").with("small", "100");
    let text = refusal(&[layer], &BELOW);
    assert!(text.contains("faults") && text.contains("two clustered blocks") && text.contains("`small`"), "{text}");
}

#[test]
fn layers_do_not_share_a_place_on_the_second_device() {
    let at = |at: &str| LayerConfig::named("advil").with("second_device", "true").with("reserved_at", at);
    assert!(build_stack(&[at("0"), at("256MB")], &BELOW).is_ok());
    assert!(refusal(&[at("0"), at("255MB")], &BELOW).contains("reserve overlapping areas"));
}

#[test]
fn unknown_layers_are_answered_with_those_there_are() {
    let Err(error) = build_stack(&[LayerConfig::named("aspirin")], &BELOW) else { panic!("it was accepted") };
    for kind in layers() {
        assert!(error.hint_text().unwrap().contains(kind.name));
    }
}

#[test]
fn defaults_can_be_written_down_and_given_back() {
    for kind in layers() {
        let mut config = LayerConfig::named(kind.name);
        for setting in (kind.settings)() {
            if let Some(default) = setting.default {
                config = config.with(&setting.name, &default.to_string());
            }
        }
        build_stack(&[config], &BELOW).unwrap();
    }
}

#[test]
fn of_the_layer_below_a_journal() {
    for setting in [
        ("mode", "fast", "unknown variant"),
        ("log", "64KB", "too small"),
        ("log", "2GB", "occupies the whole device"),
        ("log", "64TB", "too large"),
    ] {
        is_refused(LayerConfig::named("journal"), setting, &BELOW);
    }
    let stack = [LayerConfig::named("pass-through"), LayerConfig::named("journal")];
    assert!(refusal(&stack, &BELOW).contains("must be the first layer"));
}

#[test]
fn a_log_that_does_not_fit_its_disk_is_refused() {
    let zones = DiskZones { first: 1 << 16, sectors: 1 << 12, count: 500, write_sectors: 8, max_open: 6, max_active: 6 };
    let plain = DisksBelow { erase_sectors: 1 << 13, ..BELOW };
    let zoned = |zones| DisksBelow { zones: Some(zones), ..BELOW };
    for (below, key, value, said) in [
        (plain, "logs", "1", "it must be 2 to 5"),
        (plain, "spare_pct", "0", "it must be 1 to 50"),
        (plain, "low_pct", "60", "the first must not be greater"),
        (plain, "step", "5000", "multiple of 4KB"),
        (plain, "checkpoint", "0", "multiple of 4KB"),
        (plain, "segment", "3MB", "multiple or a divisor of the erase unit, 4MB"),
        (plain, "segment", "512MB", "at least 18 are necessary"),
        (plain, "segment", "many", "is not a size"),
        (zoned(zones), "segment", "2MB", "a segment is a zone"),
        (zoned(DiskZones { max_open: 3, ..zones }), "logs", "3", "need 4 open zones, but the device allows 3"),
        (zoned(DiskZones { max_open: 0, max_active: 2, ..zones }), "logs", "2", "the device allows 2"),
        (zoned(DiskZones { first: 64, ..zones }), "logs", "3", "set zones.conventional"),
        (zoned(DiskZones { count: 12, ..zones }), "logs", "3", "at least 18 are necessary"),
        (zoned(DiskZones { sectors: 100, ..zones }), "logs", "3", "no multiple of 4KB"),
    ] {
        is_refused(LayerConfig::named("lfs"), (key, value, said), &below);
    }
}
