//! The whole broker as a process of its own, over loopback: what must not grow, and what must not be copied.
//!
//! `cargo bench --bench broker` runs all; `-- growth`, `-- large`, `-- neighbour` or `-- absent` one of them. They take a minute
//! each and want a quiet machine; where it is not, read the ratios, which are medians over interleaved rounds.
//! `HOMING_BENCH_COMMAND="mosquitto -c FILE -p {port}"` measures another broker by the same rows; `{data}` in it stands for
//! a folder of its own, which `absent` needs.

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

/// The middle one; of an even number the upper.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
