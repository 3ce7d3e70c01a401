//! Damaged files of llm.c and of Hugging Face: whatever the bytes, a reader answers with an error or with something
//! that writes and reads back, and allocates nothing that the file does not have. 20 000 cases run with the suite;
//! `FULGURITE_FUZZ=1000000 cargo test -p fulgurite-models --test files files_fuzz::` runs more, and
//! `FULGURITE_FUZZ_CASE=n` one again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite_models::hugging_face::{self, Names};
use fulgurite_models::llmc::{DebugState, LlmcCheckpoint, LlmcTokenizer, Shard, Version};
use fulgurite_models::random::Stream;
use fulgurite_models::tensor_file::TensorFile;
use fulgurite_models::{GptConfig, HostTensor, Weights};

/// Remembers the largest request.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// No file here has more than a few KiB. The list of a thousand layers' parameters, which a header may ask for, stays
/// below this.
const LARGEST_ALLOWED: usize = 4 << 20;

fn config() -> GptConfig {
    GptConfig { vocabulary: 5, context: 3, layers: 2, heads: 2, channels: 2, ..GptConfig::GPT2 }
}

fn weights() -> Weights {
    let tensor = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        HostTensor::from_f32(shape, &(0..count).map(|value| value as f32 - 3.7).collect::<Vec<_>>()).unwrap()
    };
    Weights::new(config(), config().parameters().into_iter().map(|p| (p.name, tensor(&p.shape))).collect()).unwrap()
}

/// One whole file of each kind.
fn seeds() -> [Vec<u8>; 7] {
    let checkpoint = |version, rows| {
        let mut checkpoint = LlmcCheckpoint::new(weights(), version).unwrap();
        checkpoint.padded_vocabulary = rows;
        checkpoint.to_bytes().unwrap()
    };
    let state = DebugState {
        rows: 1,
        context: 2,
        inputs: vec![0, 4],
        targets: vec![3, 1],
        logits: vec![0.5; 10],
        loss: 1.5,
        gradients: weights(),
    };
    let file = hugging_face::tensor_file(&weights(), Names::Prefixed).unwrap();
    let mut safetensors = Vec::new();
    TensorFile::write(&file.metadata, &file.tensors, &mut safetensors).unwrap();
    [
        checkpoint(Version::F32, 8),
        checkpoint(Version::Bf16, 6),
        checkpoint(Version::F32Unpadded, 5),
        state.to_bytes(7).unwrap(),
        LlmcTokenizer::new([&b"ab"[..], b"c", b"\n\0"], 1).unwrap().to_bytes().unwrap(),
        Shard::to_bytes(&[1, 2, 3, 65_535]).unwrap(),
        safetensors,
    ]
}

/// Numbers that headers hold, or should not.
fn number(random: &mut Stream) -> i32 {
    let known =
        [20_240_326, 20_240_327, 20_240_328, 20_240_520, 1, 2, 3, 5, 0, -1, i32::MAX, i32::MIN, 50_257, 1 << 24];
    match random.below(4) {
        0 => 1 << random.below(32),
        1 => random.below(16) as i32,
        2 => random.next_u64() as i32,
        _ => known[random.below(known.len() as u64) as usize],
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Stream) {
    let below = |random: &mut Stream, bound: usize| random.below(bound.max(1) as u64) as usize;
    let position = below(random, bytes.len());
    if bytes.is_empty() {
        return;
    }
    match random.below(8) {
        0 => bytes[position] ^= 1 << random.below(8),
        1 => bytes[position] = random.next_u64() as u8,
        2 => bytes.truncate(position),
        3 => bytes.extend((0..below(random, 40)).map(|_| 0)),
        4 => {
            let end = (position + below(random, 64)).min(bytes.len());
            bytes.drain(position..end);
        }
        5 => {
            let end = (position + below(random, 64)).min(bytes.len());
            let piece = bytes[position..end].to_vec();
            let target = below(random, bytes.len());
            bytes.splice(target..target, piece);
        }
        // The fields that are looked at.
        _ => {
            let field = 4 * below(random, 9);
            if let Some(field) = bytes.get_mut(field..field + 4) {
                field.copy_from_slice(&number(random).to_le_bytes());
            }
        }
    }
}

/// Gives the bytes to every reader; says how many took them. Panics if one of them did and what it read does not write
/// and read back.
fn check(bytes: &[u8]) -> u64 {
    LARGEST.store(0, Ordering::Relaxed);
    let mut taken = 0;
    if let Ok(read) = LlmcCheckpoint::parse(bytes) {
        let written = read.to_bytes().expect("a checkpoint that was read can be written");
        let again = LlmcCheckpoint::parse(&written).expect("a checkpoint that was written can be read");
        // As bytes, since a NaN does not equal itself.
        assert!(again.to_bytes().unwrap() == written);
        // Beyond the header's fields, all that was read is written.
        assert!(written[1024..] == bytes[1024..]);
        taken += 1;
    }
    if let Ok(read) = DebugState::parse(bytes, &config(), 7) {
        assert!(read.to_bytes(7).expect("a state that was read can be written")[1024..] == bytes[1024..]);
        taken += 1;
    }
    if let Ok(read) = LlmcTokenizer::parse(bytes) {
        assert!(read.to_bytes().expect("a tokenizer that was read can be written")[1024..] == bytes[1024..]);
        assert!(read.token(read.end_of_text()).is_some());
        taken += 1;
    }
    if let Ok(read) = Shard::parse(bytes) {
        assert!(Shard::to_bytes(&read).expect("a shard that was read can be written")[1024..] == bytes[1024..]);
        taken += 1;
    }
    if let Ok(file) = TensorFile::parse(bytes)
        && let Ok(read) = hugging_face::read(file, None, None)
    {
        let again = hugging_face::read(hugging_face::tensor_file(&read, Names::Plain).unwrap(), None, None);
        let bytes =
            |weights: &Weights| -> Vec<u8> { weights.tensors().values().flat_map(|t| t.bytes().to_vec()).collect() };
        assert!(bytes(&again.expect("weights that were read can be written and read")) == bytes(&read));
        taken += 1;
    }
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest <= LARGEST_ALLOWED, "{largest} bytes at once for a file of {}", bytes.len());
    taken
}

fn case(number: u64, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut random = Stream::new(number, 0xF11E);
    let mut bytes = seeds[number as usize % seeds.len()].clone();
    (0..1 + random.below(3)).for_each(|_| mutate(&mut bytes, &mut random));
    bytes
}

#[test]
fn damaged_files_are_errors_or_harmless() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = seeds();
    for seed in &seeds {
        assert_eq!(check(seed), 1, "each file is of one kind");
    }
    if let Some(one) = number("FULGURITE_FUZZ_CASE") {
        check(&case(one, &seeds));
        return;
    }
    let cases = number("FULGURITE_FUZZ").unwrap_or(20_000);
    let mut accepted = 0;
    for number in 0..cases {
        let bytes = case(number, &seeds);
        match catch_unwind(AssertUnwindSafe(|| check(&bytes))) {
            Ok(taken) => accepted += taken,
            Err(_) => panic!("case {number} fails; repeat it with FULGURITE_FUZZ_CASE={number}"),
        }
    }
    println!("{cases} cases, {accepted} accepted");
    // Values have no checksum and unused fields are not looked at, so some damage makes another file rather than none.
    assert!(accepted < cases / 4, "{accepted} of {cases} cases were accepted");
}
