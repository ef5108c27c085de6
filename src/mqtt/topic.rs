//! Topic Names and Topic Filters: validity and matching.
