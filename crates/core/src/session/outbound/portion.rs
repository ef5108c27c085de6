//! Removes some items of a long row, a portion at a time.

use std::collections::VecDeque;

/// The decision about one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The item stays in the row.
    Keep,
    /// The item is removed.
    Take,
    /// The item is removed, and the portion ends behind it.
    TakeLast,
}

/// The result of one portion.
#[derive(Debug)]
pub struct Portion<T> {
    /// The items that were removed, in their order.
    pub taken: Vec<T>,
    /// Number of items that were looked at.
    pub looked_at: usize,
    /// Number of items that were moved to close the gaps.
    pub moved: usize,
    /// The number from which the next portion begins; `None` if no item is left.
    pub next: Option<u64>,
}

impl<T> Default for Portion<T> {
    /// Returns the result for an empty row.
    fn default() -> Portion<T> {
        Portion { taken: Vec::new(), looked_at: 0, moved: 0, next: None }
    }
}

/// Looks at the items of a row from the index `from` on, at `most` of them, and removes those that
/// `select` does not keep. The others keep their order. If an item is removed, moves the items
/// before `from` or those behind the portion, whichever are fewer, twice. Does not set
/// [`Portion::next`].
pub fn take_portion<T>(
    row: &mut VecDeque<T>,
    from: usize,
    most: usize,
    mut select: impl FnMut(&T) -> Selection,
) -> Portion<T> {
    let from = from.min(row.len());
    let mut portion = Portion::default();
    let mut places = Vec::new();
    for item in row.range(from..).take(most) {
        let selection = select(item);
        if selection != Selection::Keep {
            places.push(portion.looked_at);
        }
        portion.looked_at += 1;
        if selection == Selection::TakeLast {
            break;
        }
    }
    if places.is_empty() {
        return portion;
    }
    portion.moved = 2 * from.min(row.len() - from);
    row.rotate_left(from);
    let items: Vec<T> = row.drain(..portion.looked_at).collect();
    for (place, item) in items.into_iter().enumerate().rev() {
        match places.pop_if(|last| *last == place) {
            Some(_) => portion.taken.push(item),
            None => row.push_front(item),
        }
    }
    row.rotate_right(from);
    portion.taken.reverse();
    portion
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_take_the_same_items_as_one_pass() {
        for most in 1..12 {
            for seed in 0..64_u64 {
                let is_taken = |item: u64| (seed >> (item % 6)) & 1 == 1;
                let mut row: VecDeque<u64> = (0..10).collect();
                let (mut taken, mut from) = (Vec::new(), 0);
                while from < row.len() {
                    let select = |item: &u64| if is_taken(*item) { Selection::Take } else { Selection::Keep };
                    let portion = take_portion(&mut row, from, most, select);
                    assert!(portion.looked_at <= most && portion.looked_at >= portion.taken.len());
                    from += portion.looked_at - portion.taken.len();
                    taken.extend(portion.taken);
                }
                let (all, kept): (Vec<u64>, Vec<u64>) = (0..10).partition(|item| is_taken(*item));
                assert_eq!((taken, Vec::from(row)), (all, kept), "most {most}, seed {seed}");
            }
        }
    }

    #[test]
    fn a_portion_ends_behind_the_item_that_says_so() {
        let mut row: VecDeque<u64> = (0..10).collect();
        let select = |item: &u64| if item % 3 == 2 { Selection::TakeLast } else { Selection::Keep };
        let portion = take_portion(&mut row, 3, 100, select);
        assert_eq!((portion.taken, portion.looked_at), (vec![5], 3));
        assert_eq!(row, [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    }
}
