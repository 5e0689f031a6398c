package cleanerd.judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Locale;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** One batch of a specification (README.md) to bytes, by Kafka's own builders. */
final class BatchMaker {
    private static final HexFormat HEX = HexFormat.of();

    private BatchMaker() {}

    static MemoryRecords make(JsonNode batch) {
        if (batch.hasNonNull("raw")) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(batch.get("raw").asText())));
        }
        if (batch.hasNonNull("marker")) {
            return marker(batch);
        }
        if (batch.path("records").isEmpty()) {
            return empty(batch);
        }
        return filled(batch);
    }

    private static MemoryRecords filled(JsonNode batch) {
        JsonNode records = batch.get("records");
        byte magic = (byte) batch.path("magic").asInt(2);
        long base = baseOffset(batch);
        Compression codec = Compression.of(CompressionType.forName(batch.path("codec").asText("none"))).build();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                new ByteBufferOutputStream(1024),
                magic,
                codec,
                TimestampType.CREATE_TIME,
                base,
                RecordBatch.NO_TIMESTAMP,
                batch.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID),
                (short) batch.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                batch.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE),
                batch.path("transactional").asBoolean(false),
                false,
                batch.path("leader_epoch").asInt(0),
                Integer.MAX_VALUE,
                batch.path("delete_horizon").asLong(RecordBatch.NO_TIMESTAMP));
        for (JsonNode record : records) {
            long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : record.get(1).asLong();
            if (magic < 2) {
                builder.appendWithOffset(record.get(0).asLong(), timestamp, bytes(record.get(2)), bytes(record.get(3)));
            } else {
                builder.appendWithOffset(
                        record.get(0).asLong(), timestamp, bytes(record.get(2)), bytes(record.get(3)), headers(record));
            }
        }
        if (batch.hasNonNull("last")) {
            builder.overrideLastOffset(batch.get("last").asLong());
        }
        MemoryRecords made = builder.build();
        if (batch.hasNonNull("append_time")) {
            // like a leader: the header is patched, base timestamp and deltas stay the client's (F-2.6)
            for (MutableRecordBatch part : made.batches()) {
                part.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, batch.get("append_time").asLong());
            }
        }
        return made;
    }

    private static MemoryRecords marker(JsonNode batch) {
        JsonNode marker = batch.get("marker");
        ControlRecordType type = ControlRecordType.valueOf(marker.get("type").asText().toUpperCase(Locale.ROOT));
        return MemoryRecords.withEndTransactionMarker(
                batch.get("base").asLong(),
                marker.get("timestamp").asLong(),
                batch.path("leader_epoch").asInt(0),
                batch.get("producer_id").asLong(),
                (short) batch.get("producer_epoch").asInt(),
                new EndTransactionMarker(type, marker.path("coordinator_epoch").asInt(0)));
    }

    private static MemoryRecords empty(JsonNode batch) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        long base = batch.get("base").asLong();
        boolean appendTime = batch.hasNonNull("append_time");
        DefaultRecordBatch.writeEmptyHeader(
                buffer,
                RecordBatch.MAGIC_VALUE_V2,
                batch.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID),
                (short) batch.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                batch.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE),
                base,
                batch.path("last").asLong(base),
                batch.path("leader_epoch").asInt(0),
                appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                appendTime ? batch.get("append_time").asLong() : batch.path("max_timestamp").asLong(RecordBatch.NO_TIMESTAMP),
                batch.path("transactional").asBoolean(false),
                batch.path("control").asBoolean(false));
        buffer.flip();
        return MemoryRecords.readableRecords(buffer);
    }

    private static long baseOffset(JsonNode batch) {
        return batch.hasNonNull("base") ? batch.get("base").asLong() : batch.get("records").get(0).get(0).asLong();
    }

    private static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HEX.parseHex(hex.asText());
    }

    private static Header[] headers(JsonNode record) {
        JsonNode headers = record.path(4);
        Header[] made = new Header[headers.size()];
        for (int i = 0; i < made.length; i++) {
            made[i] = new RecordHeader(headers.get(i).get(0).asText(), bytes(headers.get(i).get(1)));
        }
        return made;
    }
}
