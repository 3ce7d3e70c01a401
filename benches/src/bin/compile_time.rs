//! Trace and all transforms of a full GPT-2 training step (forward, backward, AdamW), on one thread:
//! `cargo run --release -p fulgurite-benches --bin compile_time`

use fulgurite::compile::Options;
use fulgurite_benches::{median, processor};
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::config::GptConfig;
use fulgurite_models::traces::train_step_stages;

fn main() -> fulgurite::Result<()> {
    println!("processor: {}; verifier off, one thread", processor());
    println!("| layers | acquired lines | final lines | median ms | ms a layer |");
    println!("|---|---|---|---|---|");
    let options = Options { verify: false, ..Options::default() };
    for layers in [12, 24, 48] {
        let config = GptConfig { vocabulary: 50_257, context: 1024, layers, heads: 12, channels: 768, dropout: 0.0 };
        let stages = train_step_stages(&config, &OptimizerSettings::default(), 4, 64, &options)?;
        let lines = |name: &str| {
            stages.iter().find(|stage| stage.name == name).map_or(0, |stage| stage.trace.block.symbols.len())
        };
        let time = median(2, 9, || {
            let stages = train_step_stages(&config, &OptimizerSettings::default(), 4, 64, &options);
            assert!(stages.is_ok(), "it compiled a moment ago");
        });
        let ms = time.as_secs_f64() * 1e3;
        println!(
            "| {layers} | {} | {} | {ms:.1} | {:.2} |",
            lines("acquire"),
            lines("delete_last_used"),
            ms / layers as f64
        );
    }
    Ok(())
}
