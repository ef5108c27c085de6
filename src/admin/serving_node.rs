//! The node that serves in place of one that stands by.

use std::fmt;

/// The node that serves in place of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServingNode {
    /// Its name; `None` if nobody serves.
    pub(super) owner: Option<String>,
    /// The URL of its pages, without a slash at the end; `None` if no browser reaches them.
    pub(super) pages: Option<String>,
}

impl fmt::Display for ServingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.owner, &self.pages) {
            (Some(owner), Some(pages)) => {
                write!(f, "this node stands by: ask the node {owner}, which serves, at {pages}")
            }
            (Some(owner), None) => write!(
                f,
                "this node stands by: ask the node {owner}, which serves, on its machine; its admin.addresses reach no other"
            ),
            (None, _) => f.write_str("this node stands by, and nobody serves: /api/v1/cluster says more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_names_the_owner_and_its_pages_as_far_as_it_knows_them() {
        let text = |owner: Option<&str>, pages: Option<&str>| {
            ServingNode { owner: owner.map(str::to_owned), pages: pages.map(str::to_owned) }.to_string()
        };
        let both = text(Some("b"), Some("https://b:11883"));
        assert_eq!(both, "this node stands by: ask the node b, which serves, at https://b:11883");
        assert!(text(Some("b"), None).contains("on its machine"));
        assert!(text(None, None).contains("nobody serves"));
    }
}
