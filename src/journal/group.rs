//! What several batches come to: changes that cancel each other out are gone, and what may be committed together is chosen.
