//! Whom to let go when there is too much of something: connections, or memory that they hold. Whoever has most loses first, so that one client
//! with very many does not cost the others theirs.

use std::{
    collections::{BinaryHeap, HashMap},
    hash::Hash,
};

/// One of those that may have to go.
pub(crate) struct One<C, T> {
    pub(crate) it: T,
    /// Whose it is.
    pub(crate) of: C,
    /// How much it would free.
    pub(crate) weight: usize,
    /// Of one client's the greatest goes first.
    pub(crate) rank: u64,
}

/// What one client has in all, and each of it.
type Client<T> = (usize, Vec<(u64, usize, T)>);

/// Chooses until `excess` is free, or nobody is left: each time of the client that has most then.
pub(crate) fn choose<C: Hash + Eq, T>(all: Vec<One<C, T>>, excess: usize) -> Vec<T> {
    let mut clients: HashMap<C, Client<T>> = HashMap::new();
    for One { it, of, weight, rank } in all {
        let (has, theirs) = clients.entry(of).or_default();
        *has = has.saturating_add(weight);
        theirs.push((rank, weight, it));
    }
    let mut clients: Vec<_> = clients.into_values().collect();
    clients.iter_mut().for_each(|(_, theirs)| theirs.sort_by_key(|(rank, ..)| *rank));
    let mut most: BinaryHeap<(usize, usize)> =
        clients.iter().enumerate().map(|(number, (has, _))| (*has, number)).collect();
    let (mut chosen, mut freed) = (Vec::new(), 0usize);
    while freed < excess
        && let Some((has, number)) = most.pop()
    {
        let Some((_, weight, it)) = clients.get_mut(number).and_then(|(_, theirs)| theirs.pop()) else {
            continue;
        };
        freed = freed.saturating_add(weight);
        chosen.push(it);
        most.push((has.saturating_sub(weight), number));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_most_loses_first() {
        let all = || {
            let one = |it, of, rank| One { it, of, weight: 10, rank };
            vec![one(1, "a", 5), one(2, "b", 9), one(3, "a", 7), one(4, "a", 6), one(5, "b", 1)]
        };
        assert_eq!(choose(all(), 0), Vec::<i32>::new());
        assert_eq!(choose(all(), 1), [3]);
        let mut four = choose(all(), 40);
        four.sort_unstable();
        assert_eq!((four.len(), choose(all(), 1000).len()), (4, 5));
        assert!(four.contains(&3) && four.contains(&2));
    }
}
