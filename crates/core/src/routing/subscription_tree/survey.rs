//! A listing of the filters that match a topic, with their receivers, in portions.
//!
//! The walk of a publish collects receivers alone. An operator wants to know by which filter each
//! of them gets the topic. The way of the walk through the trie is the filter, so nothing is
//! compared, however many filters the receivers have.

use super::SubscriptionTree;
use super::address::GroupId;
use super::filter_map::FilterMap;
use super::receivers::Receivers;
use super::subscribers::Subscriber;
use super::walk::{Branch, WalkPlace};

/// The place of a listing between two portions. Like the place of a walk, it names no node: the
/// listing misses changes behind the place, and sees changes ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyPlace {
    stage: SurveyStage,
    /// The branches to the node, as a walk has them.
    path: Vec<Branch>,
    /// The sessions of the filter before this slot were listed.
    from: u32,
}

impl SurveyPlace {
    /// Returns the steps of the way to the place: one look-up each.
    pub fn depth(&self) -> usize {
        self.path.len()
    }
}

/// The filter of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SurveyStage {
    /// The filter that is the topic itself.
    #[default]
    Exact,
    /// The filter with `#` below the node.
    Below,
    /// The filter that ends at the node.
    Node,
}

/// The filters that match a topic, one after the other.
pub struct FilterSurvey<'a> {
    filters: &'a FilterMap,
    topic: &'a str,
    at: WalkPlace<'a>,
    stage: SurveyStage,
    from: u32,
    /// False at the end.
    is_there: bool,
}

impl SubscriptionTree {
    /// Returns the filters that match a topic, from a place on.
    pub fn survey<'a>(&'a self, topic: &'a str, place: SurveyPlace) -> FilterSurvey<'a> {
        let SurveyPlace { stage, path, from } = place;
        let at = WalkPlace::at(self.filters.wildcards(), topic, path);
        let mut survey = FilterSurvey { filters: &self.filters, topic, at, stage, from, is_there: true };
        if stage != SurveyStage::Exact {
            survey.go_back();
        }
        survey
    }
}

impl<'a> FilterSurvey<'a> {
    /// Returns true until the end.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// Goes to the node of the place, or to the next one if it was removed.
    fn go_back(&mut self) {
        let is_empty = self.at.trie.is_empty();
        if is_empty || !self.at.descend() {
            (self.stage, self.from) = (SurveyStage::Below, 0);
            self.is_there = !is_empty && self.at.pass();
        }
    }

    fn receivers(&self) -> Option<&'a Receivers> {
        let (level, node) = (self.at.path.len(), *self.at.nodes.last()?);
        match self.stage {
            SurveyStage::Exact => self.filters.find_exact(self.topic),
            // `#` includes the parent level.
            SurveyStage::Below if level >= self.at.first => self.at.trie.receivers_below(node),
            SurveyStage::Node if level == self.at.levels.len() => Some(self.at.trie.receivers(node)),
            SurveyStage::Below | SurveyStage::Node => None,
        }
    }

    /// Returns the text of the filter.
    pub fn filter(&self) -> String {
        if self.stage == SurveyStage::Exact {
            return self.topic.to_owned();
        }
        let level = |(level, branch): (&&'a [u8], &Branch)| {
            if *branch == Branch::Plus { "+".into() } else { String::from_utf8_lossy(level) }
        };
        let mut levels: Vec<_> = self.at.levels.iter().zip(&self.at.path).map(level).collect();
        levels.extend((self.stage == SurveyStage::Below).then(|| "#".into()));
        levels.join("/")
    }

    /// Returns the subscribers of this shard that were not listed yet, by their slots.
    pub fn subscribers(&self) -> impl Iterator<Item = Subscriber> + use<'a> {
        let from = self.from;
        self.receivers().into_iter().flat_map(move |receivers| receivers.local.iter_from(from)).copied()
    }

    /// Returns the shared groups; none behind the first portion of the filter.
    pub fn groups(&self) -> &'a [GroupId] {
        let receivers = self.receivers().filter(|_| self.from == 0);
        receivers.and_then(|receivers| receivers.groups.as_deref()).map_or(&[], Vec::as_slice)
    }

    /// Notes that the sessions of the filter before this slot are listed.
    pub fn listed_before(&mut self, slot: u32) {
        self.from = slot;
    }

    /// Goes to the next filter. Returns the number of bytes looked at.
    pub fn advance(&mut self) -> usize {
        self.from = 0;
        let level = self.at.levels.get(self.at.path.len()).map_or(0, |level| level.len());
        match self.stage {
            SurveyStage::Exact => {
                self.stage = SurveyStage::Below;
                self.is_there = !self.at.trie.is_empty();
            }
            SurveyStage::Below => self.stage = SurveyStage::Node,
            SurveyStage::Node => {
                self.stage = SurveyStage::Below;
                self.is_there = self.at.advance();
            }
        }
        level
    }

    /// Returns the place of the filter.
    pub fn place(self) -> SurveyPlace {
        SurveyPlace { stage: self.stage, path: self.at.path, from: self.from }
    }
}
