//! The whole broker as a process of its own, over loopback: costs that must not grow, and payloads
//! that must not be copied.
//!
//! `cargo bench --bench broker` runs all parts; `-- growth`, `-- large`, `-- neighbour` or `--
//! absent` runs one. Each takes a minute and needs a quiet machine. On a busy machine read the
//! ratios, which are medians over interleaved rounds. `HOMING_BENCH_COMMAND="mosquitto -c FILE -p
//! {port}"` measures another broker. `{data}` in the command is replaced by a new folder, which
//! `absent` needs.

mod absent;
mod client;
mod growth;
mod large;
mod neighbour;
mod process;

fn main() {
    let wanted: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let parts: [(&str, fn()); 4] = [
        ("growth", growth::run),
        ("large", large::run),
        ("neighbour", neighbour::run),
        ("absent", absent::run),
    ];
    for (name, run) in parts {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            run();
        }
    }
}

/// Returns the median; of an even number of values the upper one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
