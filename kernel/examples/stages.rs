//! Time of each stage, one thread, data in memory: `cargo run --release --example stages [codec] [record bytes] [per batch] [headers]`.
//!
//! Minimum of several passes, in ns per record, over a log of 128 MiB with 20-byte keys of which 80 % are superseded. With
//! `headers` 1 each record has a version (KIP-280), with 2 another header in front of it.

use std::hint::black_box;
use std::time::Instant;

use cleanerd_kernel::decode::{Options, decode_chunk};
use cleanerd_kernel::header::{Header, seal};
use cleanerd_kernel::offset_map::{OffsetMap, Shard, Versions};
use cleanerd_kernel::record_headers::HeaderNames;
use cleanerd_kernel::rewrite::{ACTION_DROP, ACTION_REBUILD, Request, rewrite_chunk};
use cleanerd_kernel::varint::write_varint;
use cleanerd_kernel::{bits, codec};

const LOG_BYTES: usize = 128 << 20;
const CHUNK_BYTES: usize = 4 << 20;
const PASSES: usize = 9;

/// Xorshift: the same log every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn best<T>(mut stage: impl FnMut() -> T) -> (f64, T) {
    let mut least = f64::INFINITY;
    let mut last = None;
    for _ in 0..PASSES {
        let start = Instant::now();
        last = Some(black_box(stage()));
        least = least.min(start.elapsed().as_nanos() as f64);
    }
    (least, last.expect("at least one pass"))
}

const VERSION: &[u8] = b"version";

fn write_header(output: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for field in [name, value] {
        write_varint(output, field.len() as i32);
        output.extend_from_slice(field);
    }
}

fn write_record(output: &mut Vec<u8>, delta: i32, key: u64, value_bytes: usize, headers: usize, random: &mut Random) {
    let mut body = vec![0];
    write_varint(&mut body, delta);
    write_varint(&mut body, delta);
    write_varint(&mut body, 20);
    body.extend_from_slice(format!("{key:020}").as_bytes());
    write_varint(&mut body, value_bytes as i32);
    let mut value = format!("{{\"id\":{key},\"name\":\"customer-{}\",\"amount\":", random.next() % 1000);
    while value.len() < value_bytes {
        value.push_str(&format!("{},", random.next() % 100_000));
    }
    body.extend_from_slice(&value.as_bytes()[..value_bytes]);
    write_varint(&mut body, headers as i32);
    for _ in 1..headers {
        write_header(&mut body, b"trace-id", &[b'7'; 16]);
    }
    if headers > 0 {
        write_header(&mut body, VERSION, &random.next().to_be_bytes());
    }
    write_varint(output, body.len() as i32);
    output.extend_from_slice(&body);
}

fn make_log(codec: u8, record_bytes: usize, per_batch: usize, headers: usize) -> (Vec<u8>, usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let keys = (LOG_BYTES / record_bytes / 5) as u64;
    let (mut log, mut plain_bytes, mut offset) = (Vec::new(), 0, 0i64);
    while plain_bytes < LOG_BYTES {
        let mut payload = Vec::new();
        for delta in 0..per_batch {
            let key = random.next() % keys;
            let value_bytes = record_bytes.saturating_sub(31 + 17 * headers).max(1);
            write_record(&mut payload, delta as i32, key, value_bytes, headers, &mut random);
        }
        plain_bytes += payload.len();
        let start = log.len();
        log.extend_from_slice(&[0; 61]);
        log.extend_from_slice(&codec::compress(codec.into(), &payload).expect("a codec"));
        let header = Header {
            base_offset: offset,
            size: 0,
            leader_epoch: 0,
            magic: 2,
            crc: 0,
            attributes: i16::from(codec),
            last_offset_delta: per_batch as i32 - 1,
            base_timestamp: 1_700_000_000_000 + offset,
            max_timestamp: 1_700_000_000_000 + offset + per_batch as i64 - 1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: per_batch as i32,
        };
        seal(&header, &mut log, start).expect("a small batch");
        offset += per_batch as i64;
    }
    (log, offset as usize)
}

/// Ends of chunks of whole batches.
fn chunks(log: &[u8]) -> Vec<&[u8]> {
    let mut rest = log;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let window = &rest[..rest.len().min(CHUNK_BYTES)];
        let scan = cleanerd_kernel::batch_table::scan_headers(window, 0, false).expect("a good log");
        let (chunk, after) = rest.split_at(scan.consumed);
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

fn main() {
    cleanerd_kernel::keep_freed_memory();
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().expect("a number"));
    let codec = arguments.next().unwrap_or(0) as u8;
    let record_bytes = arguments.next().unwrap_or(128);
    let per_batch = arguments.next().unwrap_or(64);
    let headers = arguments.next().unwrap_or(0);
    let (log, records) = make_log(codec, record_bytes, per_batch, headers);
    let chunks = chunks(&log);
    let per_record = |name: &str, ns: f64| println!("{name:28} {:8.1} ns/record", ns / records as f64);
    println!("codec {codec}, {records} records in {} bytes, {} chunks", log.len(), chunks.len());

    per_record(
        "CRC alone",
        best(|| chunks.iter().map(|chunk| cleanerd_kernel::crc32c(chunk, 0) as u64).sum::<u64>()).0,
    );
    let plain = Options { verify_crc: false, ..Options::default() };
    let hashed = Options { hash_key: Some([7; 16]), ..Options::default() };
    let decode = |options: &Options| {
        let all = |chunk: &&[u8]| decode_chunk(chunk, 0, options).expect("a good log").records.len();
        chunks.iter().map(all).sum::<usize>()
    };
    per_record("parse", best(|| decode(&plain)).0);
    per_record("CRC + parse", best(|| decode(&Options::default())).0);
    per_record("CRC + parse + hash", best(|| decode(&hashed)).0);
    let names = HeaderNames { version: Some(VERSION.to_vec()), ..HeaderNames::default() };
    let versioned = Options { headers: Some(names), ..hashed.clone() };
    per_record("CRC + parse + hash + version", best(|| decode(&versioned)).0);

    let tables: Vec<_> = chunks.iter().map(|chunk| decode_chunk(chunk, 0, &hashed).expect("a good log")).collect();
    let mut map = OffsetMap::new((records * 5).max(48 << 10) as i64, 0.85, true).expect("memory");
    let mut put = || {
        let mut ordinal = 0i64;
        for table in &tables {
            let mask = vec![true; table.records.len()];
            map.put_max(&table.records.key_hash, ordinal, &mask, Shard::ALL).expect("rows that fit");
            ordinal += mask.len() as i64;
        }
    };
    put();
    per_record("put (again)", best(put).0);
    println!("{:28} {:8} of {}", "keys", map.len(), map.capacity());
    let mut versions = OffsetMap::with_versions((records * 15 / 2).max(72 << 10) as i64, 0.85, true).expect("memory");
    let mut random = Random(5);
    let columns: Vec<(Vec<i64>, Vec<bool>)> =
        tables.iter().map(|table| table.records.offset.iter().map(|_| (random.next() as i64, true)).unzip()).collect();
    let mut put = |add: bool| {
        let mut ordinal = 0i64;
        for (table, (version, has)) in tables.iter().zip(&columns) {
            let mask = vec![true; table.records.len()];
            let (hashes, rows) = (&table.records.key_hash, Versions { version, has });
            if add {
                versions.put_max_version(hashes, ordinal, &mask, rows, Shard::ALL).expect("rows that fit");
            } else {
                versions.update_existing(hashes, ordinal, &mask, rows, Shard::ALL).expect("rows that fit");
            }
            ordinal += mask.len() as i64;
        }
    };
    put(true);
    per_record("put with versions (again)", best(|| put(true)).0);
    per_record("update_existing", best(|| put(false)).0);
    per_record("winners with versions", best(|| versions.winners(0, records as i64).expect("a range")).0);
    let look = |flip: u64| {
        let mut hits = 0;
        for table in &tables {
            let mask = vec![true; table.records.len()];
            let hashes: Vec<u64> = table.records.key_hash.iter().map(|word| word ^ flip).collect();
            hits += map.contains(&hashes, &mask, Shard::ALL).expect("rows").iter().filter(|&&hit| hit).count();
        }
        hits
    };
    per_record("contains, hits", best(|| look(0)).0);
    per_record("contains, misses", best(|| look(0x5555_5555_5555_5555)).0);
    let (ns, keep) = best(|| map.winners(0, records as i64).expect("a range"));
    per_record("winners", ns);

    let mut first_bit = 0i64;
    let mut plans = Vec::new();
    for table in &tables {
        let first_record: Vec<u32> = table.batches.first_record.iter().map(|&first| first + first_bit as u32).collect();
        let kept = bits::popcount_by_batch(&keep, &first_record).expect("enough bits");
        let actions: Vec<u8> =
            kept.iter().map(|&count| if count == 0 { ACTION_DROP } else { ACTION_REBUILD }).collect();
        plans.push((first_bit, actions));
        first_bit += table.records.len() as i64;
    }
    let (ns, written) = best(|| {
        let rewrite = |(chunk, (first_bit, actions)): (&&[u8], &(i64, Vec<u8>))| {
            let request = Request {
                keep_bits: &keep,
                first_bit: *first_bit,
                actions,
                delete_horizon: -1,
                max_batch_bytes: 0,
                least_max_timestamps: None,
                convert_legacy: false,
                verify_crc: true,
                max_unpacked: 1 << 30,
                lead: None,
                expected_bytes: chunk.len(),
            };
            rewrite_chunk(chunk, 0, &request).expect("a good log").data.len()
        };
        chunks.iter().zip(&plans).map(rewrite).sum::<usize>()
    });
    per_record("rewrite", ns);
    println!("{:28} {written:8} bytes", "written");
}
