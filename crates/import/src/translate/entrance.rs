//! Users and permissions: for all listeners, or for each with `per_listener_settings true`.

use super::Translator;
use super::conf_listener::{ConfListener, DefaultReach, EntranceSettings};
use super::output::Note;
use crate::conf::ConfLine;
use crate::value::{RefusedValue, boolean, path, quoted, quoted_list};

/// The clients that a listener admits, in Homing's words.
#[derive(Debug, PartialEq)]
struct TranslatedEntrance {
    /// `None` for Homing's default.
    anonymous: Option<&'static str>,
    methods: Vec<&'static str>,
    password_file: Option<String>,
    acl_file: Option<String>,
}

impl TranslatedEntrance {
    /// Returns the entrance of a listener where names come from CONNECT.
    fn by_name(settings: &EntranceSettings, reach: DefaultReach) -> TranslatedEntrance {
        // mosquitto 2 lets anonymous clients in only where it listens on loopback by default.
        let anonymous = settings.anonymous.or((reach == DefaultReach::All).then_some(false));
        TranslatedEntrance {
            anonymous: anonymous.map(|all| if all { "always" } else { "never" }),
            methods: settings.password_file.iter().map(|_| "password").collect(),
            password_file: settings.password_file.clone(),
            acl_file: settings.acl_file.clone(),
        }
    }

    /// Returns the entrance of a listener where names come from certificates. mosquitto looks
    /// neither at `allow_anonymous` nor at a password there: it refuses a client whose certificate
    /// has no name.
    fn by_certificate(settings: &EntranceSettings) -> TranslatedEntrance {
        TranslatedEntrance {
            anonymous: Some("never"),
            methods: vec!["certificate"],
            password_file: None,
            acl_file: settings.acl_file.clone(),
        }
    }
}

impl Translator {
    pub(super) fn entrance(&mut self, line: &ConfLine) -> Result<(), RefusedValue> {
        let of_listener = self.is_per_listener || line.name == "listener_allow_anonymous";
        let entrance = match self.listeners.last_mut() {
            _ if !of_listener => &mut self.entrance,
            Some(listener) => &mut listener.entrance,
            None => {
                self.default.is_used = true;
                &mut self.default.entrance
            }
        };
        match line.name.as_str() {
            "password_file" => entrance.password_file = Some(path(line)?),
            "acl_file" => entrance.acl_file = Some(path(line)?),
            _ => entrance.anonymous = Some(boolean(line)?),
        }
        Ok(())
    }

    /// Translates users and permissions. If all listeners have the same settings, these become keys
    /// of the broker; else each listener has its own keys.
    pub(super) fn entrances(&mut self, listeners: &mut [ConfListener], reach: DefaultReach) {
        let settings: Vec<EntranceSettings> =
            listeners.iter().map(|listener| self.entrance_of(listener)).collect();
        let settings = if settings.is_empty() { vec![self.entrance.clone()] } else { settings };
        let by_certificate =
            |at: usize| listeners.get(at).is_some_and(|listener| listener.certificate_user().is_some());
        let mut entrances: Vec<TranslatedEntrance> = (0..)
            .zip(&settings)
            .map(|(at, settings)| match by_certificate(at) {
                true => TranslatedEntrance::by_certificate(settings),
                false => TranslatedEntrance::by_name(settings, reach),
            })
            .collect();
        for (listener, entrance) in listeners.iter().zip(&entrances) {
            self.note_names_of_proxy(listener, entrance);
        }
        self.note_claimed_names(listeners, &entrances);
        let has_acl = entrances.iter().any(|entrance| entrance.acl_file.is_some());
        self.common_password_file(&mut entrances);
        if entrances.windows(2).any(|pair| pair[0] != pair[1]) {
            for (listener, entrance) in listeners.iter_mut().zip(entrances) {
                let TranslatedEntrance { anonymous, methods, password_file, acl_file } = entrance;
                let settings = &mut listener.settings;
                (settings.anonymous, settings.auth) = (anonymous, Some(methods));
                (settings.password_file, settings.acl_file) = (password_file, acl_file);
            }
        } else if let Some(entrance) = entrances.pop() {
            self.entrance_of_all(entrance);
        }
        if has_acl {
            // mosquitto grants every filter, and delivers what the client may read.
            self.keys.push(("acl.on_denied_subscribe", quoted("filter")));
        }
    }

    /// Notes that Homing takes the name of a certificate from a PROXY header, if that may let other
    /// clients in, or give them other rights. With a password file the name does not count.
    fn note_names_of_proxy(&mut self, listener: &ConfListener, entrance: &TranslatedEntrance) {
        let takes_names = listener.settings.proxy.is_some() && listener.settings.proxy_tls;
        let protects = entrance.acl_file.is_some() || entrance.anonymous == Some("never");
        if takes_names && entrance.methods.is_empty() && protects {
            let text = "with proxy_tls Homing takes the common name in the PROXY header as the user name; mosquitto does so \
                        only with use_identity_as_username";
            self.notes.push(Note::loss(listener.place.clone(), text));
        }
    }

    /// Notes an unverified user name that has other rules in Homing: mosquitto applies the rules of
    /// the name in the ACL file, and Homing those of clients without a user name. A claimed name
    /// counts only if nothing verifies names and all listeners that admit such names have
    /// `anonymous = "always"` (docs/rules.md).
    fn note_claimed_names(&mut self, listeners: &[ConfListener], entrances: &[TranslatedEntrance]) {
        let has_named_certificates =
            |listener: &ConfListener| listener.settings.proxy == Some("v2") && listener.settings.proxy_tls;
        let verifies = entrances.iter().any(|entrance| !entrance.methods.is_empty())
            || listeners.iter().any(has_named_certificates);
        let open = |entrance: &TranslatedEntrance| {
            entrance.methods.is_empty() && entrance.anonymous != Some("never")
        };
        let reason = if verifies {
            "because another listener verifies names"
        } else if entrances.iter().any(|entrance| open(entrance) && entrance.anonymous.is_none()) {
            "unless auth.anonymous is \"always\""
        } else {
            return;
        };
        for (at, _) in entrances.iter().enumerate().filter(|(_, one)| open(one) && one.acl_file.is_some()) {
            let text = format!(
                "nothing verifies user names there: mosquitto gives them the rules of their names in acl_file, and Homing gives \
                 them those of clients without a user name, {reason}"
            );
            let place = listeners.get(at).and_then(|listener| listener.place.clone());
            self.notes.push(Note::differs(place, &text));
        }
    }

    /// Writes the common settings of all listeners as keys of the broker.
    fn entrance_of_all(&mut self, entrance: TranslatedEntrance) {
        let TranslatedEntrance { anonymous, methods, acl_file, .. } = entrance;
        self.keys.extend(anonymous.map(|word| ("auth.anonymous", quoted(word))));
        if !methods.is_empty() {
            self.keys.push(("auth.methods", quoted_list(&methods)));
        }
        self.keys.extend(acl_file.map(|file| ("acl.file", quoted(&file))));
    }

    /// Returns the options that hold for a listener: its own and those of all listeners. Besides
    /// `allow_anonymous`, a listener has both only by plugins.
    fn entrance_of(&mut self, listener: &ConfListener) -> EntranceSettings {
        let (own, all) = (listener.entrance.clone(), self.entrance.clone());
        for files in [(&own.password_file, &all.password_file), (&own.acl_file, &all.acl_file)] {
            if let (Some(own), Some(all)) = files
                && own != all
            {
                let text = format!("mosquitto asks {own} and {all} there, and Homing takes one of them");
                self.notes.push(Note::loss(listener.place.clone(), &text));
            }
        }
        EntranceSettings {
            anonymous: own.anonymous.or(all.anonymous),
            password_file: own.password_file.or(all.password_file),
            acl_file: own.acl_file.or(all.acl_file),
        }
    }

    /// If all listeners with a password file have the same one, writes it as a key of the broker.
    /// Files that differ stay with their listeners.
    fn common_password_file(&mut self, entrances: &mut [TranslatedEntrance]) {
        let mut files: Vec<String> =
            entrances.iter().filter_map(|entrance| entrance.password_file.clone()).collect();
        files.dedup();
        if let [file] = &files[..] {
            self.keys.push(("auth.password_file", quoted(file)));
            entrances.iter_mut().for_each(|entrance| entrance.password_file = None);
        }
    }
}
