package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.IndexEntry;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/** {@code dump}: what Kafka's own decoders read in a partition directory. */
final class Dumper {
    private static final HexFormat HEX = HexFormat.of();
    private static final ObjectMapper JSON = new ObjectMapper();

    private Dumper() {}

    static void run(JsonNode command, ObjectNode answer) throws IOException {
        File directory = new File(command.get("dir").asText());
        boolean withRecords = command.path("records").asBoolean(true);
        ArrayNode segments = answer.putArray("segments");
        for (Map.Entry<Long, File> segment : Directories.segments(directory).entrySet()) {
            segments.add(segment(segment.getKey(), segment.getValue()));
        }
        FileList.write(directory, answer.putObject("files"));
        snapshots(directory, answer.putObject("snapshots"));
        try (LogReader reader = new LogReader(directory)) {
            if (command.hasNonNull("out")) {
                File out = new File(command.get("out").asText());
                try (BufferedWriter writer = Files.newBufferedWriter(out.toPath())) {
                    while (reader.hasNext()) {
                        writer.write(JSON.writeValueAsString(batch(reader.next(), withRecords)));
                        writer.newLine();
                    }
                }
            } else {
                ArrayNode batches = answer.putArray("batches");
                while (reader.hasNext()) {
                    batches.add(batch(reader.next(), withRecords));
                }
            }
        }
    }

    static ObjectNode batch(BatchView view, boolean withRecords) {
        ObjectNode node = JSON.createObjectNode();
        String problem = view.problem();
        node.put("segment", view.segment);
        node.put("position", view.position);
        node.put("size", view.batch.sizeInBytes());
        node.put("base", view.batch.baseOffset());
        node.put("last", view.batch.lastOffset());
        node.put("magic", view.batch.magic());
        node.put("crc", view.batch.checksum());
        node.put("attributes", view.attributes());
        node.put("codec", view.batch.compressionType().name);
        node.put("timestamp_type", view.batch.timestampType().name);
        node.put("leader_epoch", view.batch.partitionLeaderEpoch());
        node.put("base_timestamp", view.baseTimestamp());
        node.put("max_timestamp", view.batch.maxTimestamp());
        if (view.batch.deleteHorizonMs().isPresent()) {
            node.put("delete_horizon", view.batch.deleteHorizonMs().getAsLong());
        } else {
            node.putNull("delete_horizon");
        }
        node.put("producer_id", view.batch.producerId());
        node.put("producer_epoch", view.batch.producerEpoch());
        node.put("base_sequence", view.batch.baseSequence());
        node.put("last_sequence", view.batch.lastSequence());
        node.put("transactional", view.batch.isTransactional());
        node.put("control", view.batch.isControlBatch());
        node.put("problem", problem);
        node.put("count", problem == null ? view.records().size() : -1);
        if (withRecords && problem == null) {
            ArrayNode records = node.putArray("records");
            for (BatchView.RecordView record : view.records()) {
                records.add(record(record));
            }
        }
        return node;
    }

    private static ArrayNode record(BatchView.RecordView record) {
        ArrayNode node = JSON.createArrayNode();
        node.add(record.offset()).add(record.timestamp());
        node.add(hex(record.key())).add(hex(record.value()));
        ArrayNode headers = node.addArray();
        for (BatchView.HeaderView header : record.headers()) {
            headers.addArray().add(header.key()).add(hex(header.value()));
        }
        return node.add(record.attributes());
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }

    private static ObjectNode segment(long base, File log) throws IOException {
        ObjectNode node = JSON.createObjectNode();
        node.put("base", base);
        node.put("size", log.length());
        node.put("last_modified_ms", log.lastModified());
        File index = Directories.sibling(log, ".index");
        if (index.exists()) {
            ArrayNode entries = node.putArray("offset_index");
            OffsetIndex offsets = new OffsetIndex(index, base, -1, false);
            for (int i = 0; i < offsets.entries(); i++) {
                IndexEntry entry = offsets.entry(i);
                entries.addArray().add(entry.indexKey()).add(entry.indexValue());
            }
            Handles.letGo(offsets);
        }
        File timeIndex = Directories.sibling(log, ".timeindex");
        if (timeIndex.exists()) {
            ArrayNode entries = node.putArray("time_index");
            TimeIndex times = new TimeIndex(timeIndex, base, -1, false);
            for (int i = 0; i < times.entries(); i++) {
                IndexEntry entry = times.entry(i);
                entries.addArray().add(entry.indexKey()).add(entry.indexValue());
            }
            Handles.letGo(times);
        }
        File txnIndex = Directories.sibling(log, ".txnindex");
        if (txnIndex.exists()) {
            ArrayNode entries = node.putArray("txn_index");
            try (TransactionIndex aborted = new TransactionIndex(base, txnIndex)) {
                for (AbortedTxn txn : aborted.allAbortedTxns()) {
                    ArrayNode entry = entries.addArray().add(txn.producerId());
                    entry.add(txn.firstOffset()).add(txn.lastOffset()).add(txn.lastStableOffset());
                }
            }
        }
        return node;
    }

    private static void snapshots(File directory, ObjectNode into) throws IOException {
        for (File file : Directories.plainFiles(directory)) {
            if (file.getName().endsWith(".snapshot")) {
                ArrayNode entries = into.putArray(file.getName());
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                    entries.add(producer(entry));
                }
            }
        }
    }

    static ObjectNode producer(ProducerStateEntry entry) {
        ObjectNode node = JSON.createObjectNode();
        node.put("producer_id", entry.producerId());
        node.put("epoch", entry.producerEpoch());
        node.put("last_sequence", KafkaLog.lastSequence(entry));
        node.put("last_offset", entry.lastDataOffset());
        node.put("offset_delta", KafkaLog.lastOffsetDelta(entry));
        node.put("timestamp", entry.lastTimestamp());
        node.put("coordinator_epoch", entry.coordinatorEpoch());
        node.put("txn_first_offset", entry.currentTxnFirstOffset().orElse(-1));
        return node;
    }
}
