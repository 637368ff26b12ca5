//! Every senseless setting is refused, all at once, with what would be right.

use emmclab_base::Kind;
use emmclab_layers::{Below, LayerConfig, build_stack, layers};

const BELOW: Below = Below::new(1 << 22, Some(1 << 20));

fn refusal(config: LayerConfig) -> String {
    let Err(error) = build_stack(&[config], &BELOW) else { panic!("it was accepted") };
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.hint_text().is_some());
    error.to_string()
}

#[test]
fn each_by_itself() {
    for (key, value, said) in [
        ("reserved", "4MB", "two clustered blocks"),
        ("reserved", "8193KB", "multiple of 8KB"),
        ("reserved", "4GB", "ends behind the device"),
        ("reserved", "many", "is not a size"),
        ("reserved_at", "1KB", "multiple of 4KB"),
        ("reserved_at", "2000MB", "ends behind the device"),
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
        let text = refusal(LayerConfig::named("advil").with(key, value));
        assert!(text.contains(said), "{key}={value}: {text}");
    }
    for value in ["4KB", "17KB", "512MB"] {
        let text = refusal(LayerConfig::named("advil").with("recovery", "true").with("checkpoint", value));
        assert!(text.contains("from a small write"), "{value}: {text}");
    }
    let text = refusal(LayerConfig::named("ressd").with("hot", "paper"));
    assert!(text.contains("unknown setting `hot`"), "{text}");
    let alone = Below { second: None, ..BELOW };
    let second = LayerConfig::named("advil").with("second_device", "true");
    let Err(error) = build_stack(&[second], &alone) else { panic!("it was accepted") };
    assert!(error.to_string().contains("there is no second device"));
    let text = refusal(LayerConfig::named("pair").with("routing", "by_file").with("border", "3GB"));
    assert!(text.contains("beyond the end"), "{text}");
    let text = refusal(LayerConfig::named("pair").with("routing", "by_name"));
    assert!(text.contains("unknown variant"), "{text}");
}

#[test]
fn all_at_once() {
    let text = refusal(
        LayerConfig::named("advil")
            .with("reserved", "12KB")
            .with("clustered_page", "5KB")
            .with("small", "100"),
    );
    assert!(
        text.contains("faults") && text.contains("two clustered blocks") && text.contains("`small`"),
        "{text}"
    );
}

#[test]
fn layers_do_not_share_a_place_on_the_second_device() {
    let at = |at: &str| LayerConfig::named("advil").with("second_device", "true").with("reserved_at", at);
    assert!(build_stack(&[at("0"), at("256MB")], &BELOW).is_ok());
    let Err(error) = build_stack(&[at("0"), at("255MB")], &BELOW) else { panic!("it was accepted") };
    assert!(error.to_string().contains("claim the same place"));
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
    for (key, value, said) in [
        ("mode", "fast", "unknown variant"),
        ("log", "64KB", "too small"),
        ("log", "2GB", "takes all of the device"),
        ("log", "64TB", "too large"),
    ] {
        let refused = refusal(LayerConfig::named("journal").with(key, value));
        assert!(refused.contains(said), "{key} = {value}: {refused}");
    }
    let stack = [LayerConfig::named("pass-through"), LayerConfig::named("journal")];
    let Err(error) = build_stack(&stack, &BELOW) else { panic!("it was accepted") };
    assert!(error.to_string().contains("has to be the first one"), "{error}");
}
