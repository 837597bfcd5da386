//! Whom to let go when there is too much of something: connections, or memory that they hold. Whoever has most loses first, so that one client
//! with very many does not cost the others theirs.

use std::{
    collections::{BinaryHeap, HashMap},
    hash::Hash,
};

/// Of one client's the greatest goes first.
pub(crate) type Rank = (bool, u64);

/// Something that a client has.
pub(crate) struct One<C, T> {
    /// `None`: it counts, but is not to go.
    pub(crate) it: Option<T>,
    /// Whose it is.
    pub(crate) of: C,
    /// How much it would free.
    pub(crate) weight: usize,
    pub(crate) rank: Rank,
}

/// What one client has in all, and each of it that may go.
type Client<T> = (usize, Vec<(Rank, usize, T)>);

/// Chooses until `excess` is free, or nobody is left: each time of the client that has most then. Of those that have no more than `few` it does
/// not matter how much they have: of all of theirs the greatest goes first.
pub(crate) fn choose<C: Hash + Eq, T>(
    all: impl IntoIterator<Item = One<C, T>>,
    excess: usize,
    few: usize,
) -> Vec<T> {
    let mut clients: HashMap<C, Client<T>> = HashMap::new();
    for One { it, of, weight, rank } in all {
        let (has, theirs) = clients.entry(of).or_insert_with(|| (0, Vec::new()));
        *has = has.saturating_add(weight);
        theirs.extend(it.map(|it| (rank, weight, it)));
    }
    let mut clients: Vec<_> = clients.into_values().collect();
    clients.iter_mut().for_each(|(_, theirs)| theirs.sort_by_key(|(rank, ..)| *rank));
    let next = |has: usize, theirs: &[(Rank, usize, T)], number: usize| {
        theirs.last().map(|(rank, ..)| (has.max(few), *rank, has, number))
    };
    let all = clients.iter().enumerate();
    let mut most: BinaryHeap<_> =
        all.filter_map(|(number, (has, theirs))| next(*has, theirs, number)).collect();
    let (mut chosen, mut freed) = (Vec::new(), 0usize);
    while freed < excess
        && let Some((_, _, has, number)) = most.pop()
    {
        let Some((_, theirs)) = clients.get_mut(number) else { continue };
        let Some((_, weight, it)) = theirs.pop() else { continue };
        freed = freed.saturating_add(weight);
        chosen.push(it);
        most.extend(next(has.saturating_sub(weight), theirs, number));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(it: i32, of: &str, rank: Rank) -> One<&str, i32> {
        One { it: (it > 0).then_some(it), of, weight: 10, rank }
    }

    #[test]
    fn whoever_has_most_loses_first() {
        let all = || {
            let one = |it, of, rank| one(it, of, (false, rank));
            vec![one(1, "a", 5), one(2, "b", 9), one(3, "a", 7), one(4, "a", 6), one(5, "b", 1)]
        };
        assert_eq!(choose(all(), 0, 0), Vec::<i32>::new());
        assert_eq!(choose(all(), 1, 0), [3]);
        let mut four = choose(all(), 40, 0);
        four.sort_unstable();
        assert_eq!((four.len(), choose(all(), 1000, 0).len()), (4, 5));
        assert!(four.contains(&3) && four.contains(&2));
        assert_eq!(choose(all(), 1, 30), [2], "both have few: the greatest of all");
    }

    #[test]
    fn what_is_not_to_go_counts_for_its_client() {
        let busy = [0, 0, 0].map(|it| one(it, "a", (false, 0)));
        let all = || {
            let others = [one(1, "b", (false, 9)), one(2, "b", (true, 1)), one(3, "a", (false, 1))];
            others.into_iter()
        };
        assert_eq!(choose(all(), 10, 0), [2]);
        assert_eq!(choose(all().chain(busy), 30, 0), [3, 2, 1]);
    }
}
