package cleanerd.judge;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.DefaultRecord;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Utils;

/** A batch at its place on disk, decoded by Kafka's own classes. */
final class BatchView {
    /** A record as consumers see it; {@code attributes} is -1 where Kafka does not show it (v0, v1). */
    record RecordView(long offset, long timestamp, byte[] key, byte[] value, HeaderView[] headers, int attributes) {}

    record HeaderView(String key, byte[] value) {}

    final long segment;
    final int position;
    final ByteBuffer bytes;
    final MutableRecordBatch batch;
    /** Last batch of its segment file. */
    boolean last;

    private List<RecordView> records;

    BatchView(long segment, int position, ByteBuffer bytes) {
        this.segment = segment;
        this.position = position;
        this.bytes = bytes;
        this.batch = MemoryRecords.readableRecords(bytes.duplicate()).batches().iterator().next();
    }

    boolean isV2() {
        return batch.magic() >= 2;
    }

    int attributes() {
        return isV2() ? bytes.getShort(21) : bytes.get(17);
    }

    /** The field at byte 27 as it is stored: the delete horizon where that is set; -1 for v0 and v1. */
    long baseTimestamp() {
        return isV2() ? bytes.getLong(27) : -1;
    }

    boolean isEmpty() {
        return isV2() && batch.countOrNull() == 0;
    }

    boolean isAppendTime() {
        return batch.timestampType() == TimestampType.LOG_APPEND_TIME;
    }

    /** Null if checksum and contents are right, otherwise Kafka's error. */
    String problem() {
        try {
            batch.ensureValid();
            records();
            return null;
        } catch (RuntimeException e) {
            return e.getClass().getSimpleName() + ": " + e.getMessage();
        }
    }

    List<RecordView> records() {
        if (records == null) {
            List<RecordView> decoded = new ArrayList<>();
            try (CloseableIterator<Record> iterator = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (iterator.hasNext()) {
                    decoded.add(view(iterator.next()));
                }
            }
            if (isV2() && decoded.size() != ((DefaultRecordBatch) batch).countOrNull()) {
                throw new IllegalStateException("record count of the header is wrong");
            }
            records = decoded;
        }
        return records;
    }

    private static RecordView view(Record record) {
        record.ensureValid();
        org.apache.kafka.common.header.Header[] headers = record.headers();
        HeaderView[] views = new HeaderView[headers.length];
        for (int i = 0; i < views.length; i++) {
            views[i] = new HeaderView(headers[i].key(), headers[i].value());
        }
        int attributes = record instanceof DefaultRecord ? ((DefaultRecord) record).attributes() : -1;
        return new RecordView(
                record.offset(),
                record.timestamp(),
                Utils.toNullableArray(record.key()),
                Utils.toNullableArray(record.value()),
                views,
                attributes);
    }
}
