package cleanerd.agent;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.zip.CRC32C;

/** A self-test's batches, with one record each from one producer, and the files of a segment with some of them. */
final class SelfTestData {
    static final long PRODUCER = 7;

    private static final int VALUE_BYTES = 100;
    private static final long FIRST_TIMESTAMP_MS = 1_600_000_000_000L;

    private SelfTestData() {}

    static long timestampMs(long offset) {
        return FIRST_TIMESTAMP_MS + offset;
    }

    /** A batch of format v2; its sequence number is its offset. */
    static byte[] batch(long offset) {
        byte[] record = record(offset);
        ByteBuffer batch = ByteBuffer.allocate(Frame.HEADER_BYTES + record.length);
        batch.putLong(offset).putInt(batch.capacity() - Long.BYTES - Integer.BYTES).putInt(0).put((byte) 2);
        batch.putInt(0).putShort((short) 0).putInt(0).putLong(timestampMs(offset)).putLong(timestampMs(offset));
        batch.putLong(PRODUCER).putShort((short) 0).putInt((int) offset).putInt(1).put(record);
        CRC32C crc = new CRC32C();
        crc.update(batch.array(), Frame.CHECKED_FROM, batch.capacity() - Frame.CHECKED_FROM);
        batch.putInt(Frame.CHECKED_FROM - Integer.BYTES, (int) crc.getValue());
        return batch.array();
    }

    static byte[] log(List<Long> offsets) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        offsets.forEach(offset -> bytes.writeBytes(batch(offset)));
        return bytes.toByteArray();
    }

    /** An entry for each batch but the first. */
    static byte[] index(List<Long> offsets) {
        ByteBuffer index = ByteBuffer.allocate(8 * (offsets.size() - 1));
        for (int i = 1; i < offsets.size(); i++) {
            index.putInt(offsets.get(i).intValue()).putInt(positionOf(i));
        }
        return index.array();
    }

    static byte[] timeIndex(List<Long> offsets) {
        ByteBuffer index = ByteBuffer.allocate(12 * offsets.size());
        offsets.forEach(offset -> index.putLong(timestampMs(offset)).putInt(offset.intValue()));
        return index.array();
    }

    /** Position of the batch with this number; all batches have the same size. */
    static int positionOf(int number) {
        return number * batch(0).length;
    }

    /** Lengths are zigzag varints: two bytes for those of the record and its value, one byte for the others. */
    private static byte[] record(long offset) {
        ByteBuffer body = ByteBuffer.allocate(5 + 2 + VALUE_BYTES + 1);
        body.put(new byte[] {0, 0, 0, 2, (byte) ('a' + offset)}); // attributes, deltas, a key of one byte
        body.put(varint(VALUE_BYTES)).put(new byte[VALUE_BYTES]).put((byte) 0);
        return ByteBuffer.allocate(2 + body.capacity()).put(varint(body.capacity())).put(body.array()).array();
    }

    private static byte[] varint(int value) {
        int zigzag = value << 1;
        return new byte[] {(byte) (zigzag & 0x7F | 0x80), (byte) (zigzag >>> 7)};
    }
}
