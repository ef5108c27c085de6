//! The refusal of arguments that clap alone cannot check.

/// The reason why arguments are refused, as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(pub String);

/// Refuses with the text `why` unless `holds`.
///
/// # Errors
/// The text, if `holds` is false.
pub(super) fn require(is_met: bool, why: &str) -> Result<(), Refused> {
    if is_met { Ok(()) } else { Err(Refused(why.to_owned())) }
}
