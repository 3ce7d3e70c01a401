use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn axis(text: &str) -> Axis {
    text.parse().unwrap()
}

fn mesh_of(text: &str) -> Mesh {
    text.parse().unwrap()
}

#[test]
fn each_rank_gets_what_its_group_gave() {
    let got = simulate(&mesh_of("data=2 tensor=3"), |rank| {
        let mut all = Vec::new();
        for round in 0..50u8 {
            for along in ["tensor=3", "data=2"] {
                let bytes = exchange(&axis(along), "test", &[rank as u8, round]).unwrap();
                all.push(bytes.iter().map(|bytes| bytes[0]).collect::<Vec<u8>>());
                assert!(bytes.iter().all(|bytes| bytes[1] == round));
            }
        }
        assert_eq!(least("test", 10 - rank as u8), Ok(5));
        assert_eq!(same("test", "one\ntwo"), Ok(()));
        (all, place(&axis("tensor=3")).unwrap(), super::rank(), mesh().ranks())
    });
    for (rank, (all, place, number, ranks)) in got.unwrap().into_iter().enumerate() {
        assert_eq!((place, number, ranks), (rank % 3, rank, 6));
        let first = rank as u8 / 3 * 3;
        let (tensor, data) = (vec![first, first + 1, first + 2], vec![rank as u8 % 3, rank as u8 % 3 + 3]);
        assert!(all.chunks(2).all(|pair| pair == [tensor.clone(), data.clone()]), "{rank}: {all:?}");
    }
}

#[test]
fn ranks_that_call_something_else_are_errors() {
    let outcomes = simulate(&mesh_of("data=2"), |rank| {
        exchange(&axis("data=2"), if rank == 0 { "all_reduce of f32[2]" } else { "all_gather of f32[2]" }, &[])
    });
    for (rank, outcome) in outcomes.unwrap().into_iter().enumerate() {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(&format!("rank {rank} calls all_")), "{message}");
        assert!(message.contains(&format!("rank {} calls all_", 1 - rank)), "{message}");
    }
    let texts = ["sum of x\nsum of y", "sum of x\nmax of y", "sum of x"];
    let outcomes = simulate(&mesh_of("data=3"), |rank| same("the collectives of f", texts[rank]).unwrap_err());
    let messages: Vec<String> = outcomes.unwrap().iter().map(ToString::to_string).collect();
    assert!(messages[0].starts_with("rank 0 calls sum of y, rank 1 calls max of y"), "{messages:?}");
    assert!(messages[2].starts_with("rank 2 calls nothing more, rank 0 calls sum of y"), "{messages:?}");
}

#[test]
fn nobody_waits_for_ever() {
    let outcomes = simulate(&mesh_of("data=3"), |rank| match rank {
        1 => Ok(Vec::new()),
        _ => exchange(&axis("data=3"), "all_reduce", &[]),
    });
    let message = outcomes.unwrap()[2].clone().unwrap_err().to_string();
    assert_eq!(message, "rank 2 waits in all_reduce, and rank 1 has ended or failed without calling it");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        simulate(&mesh_of("data=2"), |rank| match rank {
            1 => panic!("rank 1 fails"),
            _ => exchange(&axis("data=2"), "barrier", &[]).unwrap_err(),
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"rank 1 fails"));
}

/// Along two axes, in different orders; often, since a rank may be told of it after another has ended for it.
#[test]
fn ranks_that_wait_for_each_other_are_errors() {
    for _ in 0..200 {
        let outcomes = simulate(&mesh_of("data=2 tensor=2"), |rank| {
            let first = if [0, 3].contains(&rank) { "data=2" } else { "tensor=2" };
            exchange(&axis(first), &format!("all_reduce along {first}"), &[]).unwrap_err()
        });
        for (rank, error) in outcomes.unwrap().into_iter().enumerate() {
            let message = error.to_string();
            assert!(message.starts_with(&format!("rank {rank} waits in all_reduce along")), "{message}");
            assert!(message.contains("data=2") && message.contains("tensor=2"), "{message}");
            assert!(message.ends_with("no rank can go on"), "{message}");
        }
    }
}

/// What a rank gives after it failed would meet what the others gave before.
#[test]
fn a_rank_that_failed_exchanges_nothing_more() {
    let outcomes = simulate(&mesh_of("data=2"), |rank| {
        let step = |number: u8| exchange(&axis("data=2"), "step", &[number]);
        if rank == 1 {
            fail();
            return vec![step(2)];
        }
        vec![step(1), step(2)]
    });
    let outcomes = outcomes.unwrap();
    assert!(matches!(outcomes[1][0], Err(RankError::Failed { rank: 1, .. })), "{outcomes:?}");
    assert!(
        outcomes[0].iter().all(|outcome| matches!(outcome, Err(RankError::Ended { ended: 1, .. }))),
        "{outcomes:?}"
    );
}

#[test]
fn another_mesh_than_the_programs_is_an_error() {
    assert_eq!(exchange(&axis("data=1"), "test", &[7]).unwrap()[0].as_slice(), &[7]);
    let alone = exchange(&axis("data=4"), "test", &[]).unwrap_err().to_string();
    assert!(alone.contains("the axis data=4, and runs on one rank"), "{alone}");
    let outcomes = simulate(&mesh_of("data=2"), |_| {
        assert!(place(&axis("tensor=1")).is_ok());
        ["data=4", "data=1", "tensor=2"].map(|along| exchange(&axis(along), "test", &[]).unwrap_err())
    });
    for error in outcomes.unwrap().into_iter().flatten() {
        assert!(error.to_string().contains("runs on the mesh 'data=2'"), "{error}");
    }
}
