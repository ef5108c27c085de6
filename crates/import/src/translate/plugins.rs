//! The plugins of mosquitto whose work Homing does itself: users, permissions and the store.
//!
//! mosquitto 2.1 has them in place of `password_file`, `acl_file` and `persistence`. A plugin is
//! known by the base name of its library. Its options follow the line that loads it, and its
//! `plugin_use`. So plugins are translated when all lines are read.

use super::Translator;
use super::output::{Note, place_of};
use crate::conf::ConfLine;
use crate::value::{RefusedValue, path, text};
use std::path::Path;

const UNKNOWN: &str = "Homing loads no plugins, and does the work of mosquitto_acl_file, mosquitto_password_file and \
                       mosquitto_persist_sqlite only";

/// A plugin whose work Homing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownPlugin {
    AclFile,
    PasswordFile,
    PersistSqlite,
}

/// The connections for which a plugin works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PluginScope {
    /// All listeners.
    Broker,
    /// The default listener.
    DefaultListener,
    /// The listener with this number.
    Listener(usize),
}

/// A line that loads a plugin, with the lines about this plugin.
#[derive(Debug)]
struct LoadedPlugin {
    /// The place of the line.
    place: String,
    /// The name for `plugin_use`.
    name: Option<String>,
    /// `None` for a plugin that was reported as lost.
    known: Option<KnownPlugin>,
    /// The file with its data.
    file: Option<String>,
    scopes: Vec<PluginScope>,
}

/// The plugins that the lines so far have loaded.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    loaded: Vec<LoadedPlugin>,
    /// The plugin that the next options are for.
    current: Option<usize>,
}

impl KnownPlugin {
    /// Returns the plugin of a library, by its base name.
    fn of_library(path: &str) -> Option<KnownPlugin> {
        match Path::new(path).file_stem()?.to_str()? {
            "mosquitto_acl_file" => Some(KnownPlugin::AclFile),
            "mosquitto_password_file" => Some(KnownPlugin::PasswordFile),
            "mosquitto_persist_sqlite" => Some(KnownPlugin::PersistSqlite),
            _ => None,
        }
    }

    /// Returns the option that names the file of the plugin, without its beginning.
    fn file_option(self) -> &'static str {
        match self {
            KnownPlugin::AclFile => "acl_file",
            KnownPlugin::PasswordFile => "password_file",
            KnownPlugin::PersistSqlite => "db_file",
        }
    }

    /// Returns true if Homing behaves so without an option. Homing's default is to store each
    /// message before it is acknowledged, which is at least as safe.
    fn does_without(self, option: &str) -> bool {
        self == KnownPlugin::PersistSqlite && matches!(option, "sync" | "flush_period" | "page_size")
    }
}

impl Plugins {
    /// Adds a plugin, to which the next options belong.
    ///
    /// # Errors
    /// Homing does not do the work of the plugin. Its options are lost, too.
    fn load(
        &mut self,
        line: &ConfLine,
        name: Option<&str>,
        library: &str,
        scope: Option<PluginScope>,
    ) -> Result<(), RefusedValue> {
        let known = KnownPlugin::of_library(library);
        self.current = Some(self.loaded.len());
        self.loaded.push(LoadedPlugin {
            place: place_of(line),
            name: name.map(str::to_owned),
            known,
            file: None,
            scopes: scope.into_iter().collect(),
        });
        known.map(|_| ()).ok_or_else(|| UNKNOWN.to_owned())
    }

    /// Makes a plugin work for a listener.
    ///
    /// # Errors
    /// No plugin has this name.
    fn attach(&mut self, name: &str, listener: usize) -> Result<(), RefusedValue> {
        let at = self.loaded.iter().position(|plugin| plugin.name.as_deref() == Some(name));
        let plugin = at.and_then(|at| self.loaded.get_mut(at)).ok_or("no plugin_load has this name")?;
        plugin.scopes.push(PluginScope::Listener(listener));
        self.current = at;
        Ok(())
    }

    /// Takes an option of the current plugin.
    ///
    /// # Errors
    /// There is no such plugin, or Homing has no equal of its option.
    fn option(&mut self, line: &ConfLine, option: &str) -> Result<(), RefusedValue> {
        let current = self.current.and_then(|at| self.loaded.get_mut(at));
        let plugin = current.ok_or("stands behind no plugin")?;
        let known = plugin.known.ok_or(UNKNOWN)?;
        if option == known.file_option() {
            plugin.file = Some(path(line)?);
        } else if !known.does_without(option) {
            return Err("Homing has no such option".to_owned());
        }
        Ok(())
    }

    /// Returns true if the current plugin is one whose work Homing does.
    fn is_known(&self) -> bool {
        self.current.and_then(|at| self.loaded.get(at)).is_some_and(|plugin| plugin.known.is_some())
    }
}

impl Translator {
    /// Reads a line about a plugin.
    pub(super) fn plugin(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let value = text(line)?;
        match line.name.as_str() {
            "plugin_load" => {
                let (name, library) = value.split_once([' ', '\t']).ok_or("needs a name and a library")?;
                self.plugins.load(line, Some(name), library.trim(), None)
            }
            "plugin_use" => match self.listeners.len() {
                0 => Err("needs a listener before it".to_owned()),
                count => self.plugins.attach(&value, count - 1),
            },
            "global_plugin" => self.plugins.load(line, None, &value, Some(PluginScope::Broker)),
            "plugin" | "auth_plugin" => {
                let scope = self.plugin_scope();
                self.plugins.load(line, None, &value, Some(scope))
            }
            "auth_plugin_deny_special_chars" if self.plugins.is_known() => {
                let text =
                    "Homing lets nobody with + or # in the user name or client identifier past an ACL file";
                self.notes.push(Note::differs(Some(place_of(line)), text));
                Ok(())
            }
            name => {
                let option = name.strip_prefix("plugin_opt_").or_else(|| name.strip_prefix("auth_opt_"));
                self.plugins.option(line, option.ok_or(UNKNOWN)?)
            }
        }
    }

    /// Returns the connections for which `plugin` works at this place of the file.
    fn plugin_scope(&mut self) -> PluginScope {
        match self.listeners.len().checked_sub(1) {
            _ if !self.is_per_listener => PluginScope::Broker,
            Some(last) => PluginScope::Listener(last),
            None => {
                self.default.is_used = true;
                PluginScope::DefaultListener
            }
        }
    }

    /// Gives the files of all plugins to the listeners for which they work. A plugin that was
    /// loaded and is not used has no effect in mosquitto either.
    pub(super) fn plugin_files(&mut self) {
        for plugin in std::mem::take(&mut self.plugins.loaded) {
            let Some(known) = plugin.known.filter(|_| !plugin.scopes.is_empty()) else { continue };
            if known == KnownPlugin::PersistSqlite {
                self.broker.persist_beside(plugin.file.as_deref());
                continue;
            }
            let Some(file) = plugin.file else {
                let text = format!("needs plugin_opt_{}", known.file_option());
                self.notes.push(Note::loss(Some(plugin.place), &text));
                continue;
            };
            for scope in plugin.scopes {
                if let Err(text) = self.give(known, &file, scope) {
                    self.notes.push(Note::loss(Some(plugin.place.clone()), &text));
                }
            }
        }
    }

    /// Gives the file of a plugin to the listeners of a scope.
    ///
    /// # Errors
    /// The listeners have another file. mosquitto asks both, and Homing takes one.
    fn give(&mut self, known: KnownPlugin, file: &str, scope: PluginScope) -> Result<(), RefusedValue> {
        let entrance = match scope {
            PluginScope::Broker => &mut self.entrance,
            PluginScope::DefaultListener => &mut self.default.entrance,
            PluginScope::Listener(at) => match self.listeners.get_mut(at) {
                Some(listener) => &mut listener.entrance,
                None => return Ok(()),
            },
        };
        let own = match known {
            KnownPlugin::AclFile => &mut entrance.acl_file,
            KnownPlugin::PasswordFile => &mut entrance.password_file,
            KnownPlugin::PersistSqlite => return Ok(()),
        };
        match own {
            Some(other) if other != file => {
                Err(format!("mosquitto asks {other} and {file}, and Homing takes one of them"))
            }
            _ => {
                *own = Some(file.to_owned());
                Ok(())
            }
        }
    }
}
