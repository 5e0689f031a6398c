package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Set;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/**
 * {@code recover}: a broker's start on each directory, and the committed records that readers find then, also after the open
 * transactions were aborted. Works in place: {@code shut_down} only stops the broker cleanly, otherwise the logs are unusable
 * afterwards.
 */
final class RecoverCommand {
    private static final HexFormat HEX = HexFormat.of();
    private static final int FETCH_BYTES = 1 << 20;

    private RecoverCommand() {}

    static void run(JsonNode command, ObjectNode answer) {
        ArrayNode logs = answer.putArray("logs");
        for (JsonNode log : command.get("logs")) {
            ObjectNode merged = command.deepCopy();
            merged.remove("logs");
            merged.setAll((ObjectNode) log);
            ObjectNode one = logs.addObject();
            try {
                recover(merged, one);
            } catch (Exception | AssertionError e) {
                one.removeAll();
                StringWriter trace = new StringWriter();
                e.printStackTrace(new PrintWriter(trace));
                one.put("error", e.getClass().getName() + ": " + e.getMessage());
                one.put("trace", trace.toString());
            }
        }
    }

    private static void recover(JsonNode command, ObjectNode answer) throws IOException {
        File directory = new File(command.get("dir").asText());
        long start = command.path("log_start_offset").asLong(0);
        KafkaLog log = KafkaLog.open(OpenOptions.from(command, directory, command.get("now_ms").asLong(), start));
        boolean shutDown = command.path("shut_down").asBoolean(false);
        try {
            answer.put("log_start_offset", log.logStartOffset());
            answer.put("log_end_offset", log.logEndOffset());
            ArrayNode producers = answer.putArray("producers");
            List<ProducerStateEntry> entries = new ArrayList<>(log.producers().values());
            entries.sort(Comparator.comparingLong(ProducerStateEntry::producerId));
            entries.forEach(entry -> producers.add(Dumper.producer(entry)));
            if (!shutDown) {
                log.setHighWatermark(log.logEndOffset());
                answer.put("last_stable_offset", log.lastStableOffset());
                read(log, answer.putArray("committed"));
                abortAll(log, entries, command.get("now_ms").asLong());
                log.setHighWatermark(log.logEndOffset());
                read(log, answer.putArray("ended"));
            }
        } finally {
            if (shutDown) {
                log.close();
            } else {
                log.abandon();
            }
        }
    }

    private static void abortAll(KafkaLog log, List<ProducerStateEntry> entries, long nowMs) {
        for (ProducerStateEntry entry : entries) {
            if (entry.currentTxnFirstOffset().isPresent()) {
                log.append(MemoryRecords.withEndTransactionMarker(
                        log.logEndOffset(),
                        nowMs,
                        0,
                        entry.producerId(),
                        entry.producerEpoch(),
                        new EndTransactionMarker(ControlRecordType.ABORT, Math.max(0, entry.coordinatorEpoch()))));
            }
        }
    }

    /** All records of a read_committed consumer: offset, key, value, and the header {@code version}. */
    private static void read(KafkaLog log, ArrayNode into) throws IOException {
        long position = log.logStartOffset();
        for (long before = -1; before < position; ) {
            before = position;
            position = fetch(log, position, into);
        }
    }

    private static long fetch(KafkaLog log, long from, ArrayNode into) throws IOException {
        KafkaLog.Fetched fetched = log.read(from, FETCH_BYTES, true);
        PriorityQueue<AbortedTransaction> coming =
                new PriorityQueue<>(Comparator.comparingLong(AbortedTransaction::firstOffset));
        coming.addAll(fetched.aborted());
        Set<Long> aborted = new HashSet<>();
        long position = from;
        for (RecordBatch batch : fetched.records().batches()) {
            while (!coming.isEmpty() && coming.peek().firstOffset() <= batch.lastOffset()) {
                aborted.add(coming.poll().producerId());
            }
            if (isAbort(batch)) {
                aborted.remove(batch.producerId());
            }
            boolean hidden = batch.isTransactional() && aborted.contains(batch.producerId());
            if (!batch.isControlBatch() && !hidden) {
                for (Record record : batch) {
                    if (record.offset() >= from) {
                        ArrayNode one = into.addArray().add(record.offset());
                        one.add(hex(Utils.toNullableArray(record.key()))).add(hex(Utils.toNullableArray(record.value())));
                        one.add(version(record));
                    }
                }
            }
            position = Math.max(position, batch.nextOffset());
        }
        return position;
    }

    private static boolean isAbort(RecordBatch batch) {
        if (!batch.isControlBatch()) {
            return false;
        }
        Iterator<Record> records = batch.iterator();
        return records.hasNext() && ControlRecordType.parse(records.next().key()) == ControlRecordType.ABORT;
    }

    private static String version(Record record) {
        String found = null;
        for (Header header : record.headers()) {
            if (header.key().equals("version")) {
                found = hex(header.value());
            }
        }
        return found;
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }
}
