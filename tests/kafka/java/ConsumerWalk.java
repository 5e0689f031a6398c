package cleanerd.judge;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Iterator;
import java.util.PriorityQueue;
import java.util.Set;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * A consumer's records from an offset on, fetch by fetch, until a fetch returns none. Aborted data is left out as by the
 * consumer's own CompletedFetch, by the aborted transactions that the broker's {@code UnifiedLog.read} returns.
 */
final class ConsumerWalk {
    private final KafkaLog log;
    private final int fetchBytes;
    private final boolean committed;
    private long position;
    private long count;
    private long first = -1;
    private long digest;

    private ConsumerWalk(KafkaLog log, long from, int fetchBytes, boolean committed) {
        this.log = log;
        this.position = from;
        this.fetchBytes = fetchBytes;
        this.committed = committed;
    }

    /** Adds from, fetch bytes, 1 for read_committed; then: records, the first one's offset, digest of all offsets, last position. */
    static void write(KafkaLog log, long from, int fetchBytes, boolean committed, ArrayNode into) throws IOException {
        ConsumerWalk walk = new ConsumerWalk(log, from, fetchBytes, committed);
        for (long before = -1; before < walk.position; ) {
            before = walk.position;
            walk.fetch();
        }
        into.add(from).add(fetchBytes).add(committed ? 1 : 0);
        into.add(walk.count).add(walk.first).add(walk.digest).add(walk.position);
    }

    private void fetch() throws IOException {
        KafkaLog.Fetched fetched = log.read(position, fetchBytes, committed);
        PriorityQueue<AbortedTransaction> coming =
                new PriorityQueue<>(Comparator.comparingLong(AbortedTransaction::firstOffset));
        coming.addAll(fetched.aborted());
        Set<Long> aborted = new HashSet<>();
        for (RecordBatch batch : fetched.records().batches()) {
            if (committed && batch.hasProducerId()) {
                while (!coming.isEmpty() && coming.peek().firstOffset() <= batch.lastOffset()) {
                    aborted.add(coming.poll().producerId());
                }
                if (isAbort(batch)) {
                    aborted.remove(batch.producerId());
                } else if (batch.isTransactional() && aborted.contains(batch.producerId())) {
                    position = batch.nextOffset();
                    continue;
                }
            }
            take(batch);
            position = Math.max(position, batch.nextOffset());
        }
    }

    private void take(RecordBatch batch) {
        if (batch.isControlBatch()) {
            return;
        }
        for (Record record : batch) {
            if (record.offset() < position) {
                continue;
            }
            first = count == 0 ? record.offset() : first;
            count++;
            digest = digest * 1_000_003 + record.offset();
            position = record.offset() + 1;
        }
    }

    private static boolean isAbort(RecordBatch batch) {
        if (!batch.isControlBatch()) {
            return false;
        }
        Iterator<Record> records = batch.iterator();
        return records.hasNext() && ControlRecordType.parse(records.next().key()) == ControlRecordType.ABORT;
    }
}
