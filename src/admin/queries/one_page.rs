//! A page of rows that several shards have in one order.

use crate::operators::query::BYTES;

/// Sorts rows by their keys, and cuts them to a page of `limit` rows with texts of [`BYTES`].
/// `reached` is the least key at which a shard has stopped, if one has: behind it, its rows are not
/// known. Returns the key behind which the next page begins; `None` at the end.
pub(super) fn cut_page<T, K: Ord + Copy>(
    rows: &mut Vec<T>,
    limit: usize,
    key: impl Fn(&T) -> K,
    bytes_of: impl Fn(&T) -> usize,
    reached: Option<K>,
) -> Option<K> {
    rows.retain(|row| reached.is_none_or(|reached| key(row) <= reached));
    rows.sort_by_key(&key);
    let mut bytes = 0;
    let is_full = |(at, row): (usize, &T)| {
        bytes += bytes_of(row);
        at + 1 >= limit || bytes >= BYTES
    };
    let fits = rows.iter().enumerate().position(is_full).map_or(rows.len(), |at| at + 1);
    if fits == rows.len() {
        return reached;
    }
    rows.truncate(fits);
    rows.last().map(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_where_a_shard_has_stopped_or_where_it_is_full() {
        let page = |limit, reached, bytes: usize| {
            let mut rows = vec![5, 1, 4, 2];
            let next = cut_page(&mut rows, limit, |row| *row, |_| bytes, reached);
            (rows, next)
        };
        assert_eq!(page(9, None, 1), (vec![1, 2, 4, 5], None));
        assert_eq!(page(4, None, 1), (vec![1, 2, 4, 5], None));
        assert_eq!(page(3, None, 1), (vec![1, 2, 4], Some(4)));
        assert_eq!(page(9, Some(3), 1), (vec![1, 2], Some(3)), "another row may be 3");
        assert_eq!(page(1, Some(3), 1), (vec![1], Some(1)));
        assert_eq!(page(9, None, BYTES / 2), (vec![1, 2], Some(2)));
        assert_eq!(page(9, None, BYTES), (vec![1], Some(1)), "a page has one row at least");
    }
}
