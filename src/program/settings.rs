//! The flags for the configuration, and the layers that it is read from.

use clap::Args;
use homing::config::{ConfigRefusal, DEFAULT_FILES, Loaded, Sources};
use std::path::PathBuf;

/// The flags for the configuration.
#[derive(Args, Clone)]
pub(crate) struct Settings {
    /// Listen here instead of on network.listen; repeat for several. Port 0 takes a free port
    #[arg(long, value_name = "ADDR:PORT", global = true)]
    listen: Vec<String>,
    /// Read this file [default: HOMING_CONFIG, else config/homing.toml here, else
    /// /etc/homing/homing.toml]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory of the store [default: systemd's STATE_DIRECTORY, else homing-data here]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "ephemeral")]
    data_dir: Option<String>,
    /// Store nothing: sessions and messages end with the process
    #[arg(long, global = true)]
    ephemeral: bool,
    /// Set any key of the configuration; repeat for several
    #[arg(long, value_name = "SECTION.KEY=VALUE", global = true)]
    set: Vec<String>,
    /// Log level: error, warn, info, debug, trace, or directives such as info,homing::broker=debug
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
    /// Log format on standard error: auto, text, json or journal
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<String>,
}

impl Settings {
    /// Returns true if the flags name an address to listen on.
    pub(crate) fn names_listener(&self) -> bool {
        !self.listen.is_empty()
    }
}

/// Reads all layers of the configuration. A flag such as `--listen` wins over `--set`.
///
/// # Errors
/// All problems of all layers, each with its source.
pub(crate) fn read_configuration(settings: &Settings) -> Result<Loaded, ConfigRefusal> {
    let named = std::env::var_os("HOMING_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let sources = match settings.config.clone().or(named) {
        Some(path) => Sources::new().file(path),
        None => Sources::new().first_file_of(&DEFAULT_FILES),
    };
    with_upper_layers(sources, settings).load()
}

/// Reads all layers of the configuration but the file, for commands to a running broker whose file
/// has a mistake by now.
///
/// # Errors
/// All problems of these layers, each with its source.
pub(crate) fn read_without_file(settings: &Settings) -> Result<Loaded, ConfigRefusal> {
    with_upper_layers(Sources::new(), settings).load()
}

/// Adds the layers above the file: the environment and the flags.
fn with_upper_layers(sources: Sources, settings: &Settings) -> Sources {
    let mut sources = sources.environment(std::env::vars_os());
    for text in &settings.set {
        sources = sources.assignment(text);
    }
    if !settings.listen.is_empty() {
        sources = sources.flag("--listen", "network.listen", &settings.listen.join(","));
    }
    if let Some(directory) = &settings.data_dir {
        sources = sources.flag("--data-dir", "store.path", directory);
    }
    if settings.ephemeral {
        sources = sources.flag("--ephemeral", "store.durability", "none");
    }
    if let Some(level) = &settings.log_level {
        sources = sources.flag("--log-level", "log.level", level);
    }
    if let Some(format) = &settings.log_format {
        sources = sources.flag("--log-format", "log.format", format);
    }
    sources
}

/// Returns the sources of the configuration, lowest layer first. A file without a single key is
/// named, too.
pub(crate) fn configuration_line(loaded: &Loaded) -> String {
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    let others = loaded.sources.iter().filter(|name| Some(*name) != file.as_ref()).cloned();
    let read: Vec<String> = file.iter().cloned().chain(others).collect();
    match (&file, read.is_empty()) {
        (None, true) => {
            let [here, system] = DEFAULT_FILES;
            format!("built-in defaults; neither {here} nor {system} exists")
        }
        _ => format!("built-in defaults, {}", read.join(", ")),
    }
}

/// Returns the text of `homing check-config`. `files` has the known facts about the files that the
/// configuration names.
pub(crate) fn check_config(loaded: &Loaded, files: &str) -> String {
    let read = configuration_line(loaded);
    let mut text = format!("configuration is valid\nread: {read}\nfiles that it names: {files}");
    loaded.ignored.iter().for_each(|ignored| text += &format!("\n{ignored}"));
    if loaded.changed.is_empty() {
        return text + "\nevery key has its built-in default";
    }
    text += "\nnot at the built-in default:";
    for setting in &loaded.changed {
        text += &format!("\n  {setting}");
    }
    text
}
