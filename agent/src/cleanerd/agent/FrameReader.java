package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Reads the batch headers of a {@code .log} file with a small buffer, without the records of large batches. */
final class FrameReader implements Closeable {
    static final int ABORT = 0;
    static final int COMMIT = 1;

    private static final int BUFFER_BYTES = 64 * 1024;
    private static final int MARKER_BYTES = 40; // up to the end of the key; the batch of a marker is never compressed
    private static final int SIZE_BYTES = 12; // offset and size, at the start of a batch of any version

    private final FileChannel channel;
    private final long end;
    private final ByteBuffer buffer;
    private long bufferStart;
    private long position;
    private long previousLast;

    /** {@code from}: lower bound of the file's offsets. */
    FrameReader(Path path, long from) throws IOException {
        channel = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
        end = channel.size();
        previousLast = from - 1;
        // A small buffer for a small file: a group may have a hundred sources of a few hundred bytes.
        buffer = ByteBuffer.allocate((int) Math.min(BUFFER_BYTES, end));
        buffer.limit(0);
    }

    /** The next batch, null at the end of the file; refuses with {@code code} if the bytes are not a batch. */
    Frame next(String code) throws IOException, Refusal {
        if (position == end) {
            return null;
        }
        int available = fill();
        int at = (int) (position - bufferStart);
        if (available < Frame.LEGACY_BYTES) {
            throw wrong(code, "it is truncated");
        }
        long bytes = SIZE_BYTES + (long) buffer.getInt(at + 8);
        int magic = buffer.get(at + 16);
        if (magic < 0 || magic > 2) {
            throw wrong(code, "the magic is " + magic);
        }
        int least = magic == 2 ? Frame.HEADER_BYTES : Frame.LEGACY_BYTES;
        if (bytes < least || bytes > end - position) {
            throw wrong(code, "its size is " + bytes + ", but only " + (end - position) + " bytes remain");
        }
        if (available < least) {
            throw wrong(code, "it is truncated");
        }
        Frame frame = magic == 2 ? modern(at, bytes) : legacy(at, bytes);
        position += bytes;
        previousLast = frame.last();
        return frame;
    }

    /** Type of the marker in the batch {@code frame}: {@link #ABORT}, {@link #COMMIT}, or -1 if it is neither. */
    int markerType(Frame frame) throws IOException {
        if (!frame.control() || frame.recordCount() != 1) {
            return -1;
        }
        ByteBuffer record = ByteBuffer.allocate((int) Math.min(MARKER_BYTES, frame.bytes() - Frame.HEADER_BYTES));
        while (record.hasRemaining()
                && channel.read(record, frame.position() + Frame.HEADER_BYTES + record.position()) > 0) { }
        record.flip();
        skipVarint(record); // size of the record
        skip(record, 1); // attributes
        skipVarint(record); // timestamp and offset of the record, size of its key
        skipVarint(record);
        skipVarint(record);
        skip(record, 2); // version of the key
        int type = record.remaining() < 2 ? -1 : record.getShort();
        return type == ABORT || type == COMMIT ? type : -1;
    }

    private static void skipVarint(ByteBuffer record) {
        while (record.hasRemaining() && record.get() < 0) { }
    }

    private static void skip(ByteBuffer record, int bytes) {
        record.position(Math.min(record.limit(), record.position() + bytes));
    }

    private Frame modern(int at, long bytes) {
        long base = buffer.getLong(at);
        return new Frame(position, bytes, base, base + buffer.getInt(at + 23), buffer.getInt(at + 12), 2,
                buffer.getInt(at + 17), buffer.getShort(at + 21), buffer.getLong(at + 35), buffer.getLong(at + 43),
                buffer.getShort(at + 51), buffer.getInt(at + 57));
    }

    /** First offset and largest timestamp are not needed, because staged files have v2 batches only (U-18). */
    private Frame legacy(int at, long bytes) {
        return new Frame(position, bytes, previousLast + 1, buffer.getLong(at), -1, buffer.get(at + 16), 0, 0, -1, -1,
                -1, 0);
    }

    /** Reads the header at {@code position} into the buffer. Returns how many of its bytes there are. */
    private int fill() throws IOException {
        long left = bufferStart + buffer.limit() - position;
        long wanted = Math.min(Frame.HEADER_BYTES, end - position);
        if (position < bufferStart || left < wanted) {
            buffer.clear();
            bufferStart = position;
            while (buffer.position() < wanted && channel.read(buffer, bufferStart + buffer.position()) > 0) { }
            buffer.flip();
            left = buffer.limit();
        }
        return (int) Math.min(left, wanted);
    }

    private Refusal wrong(String code, String what) {
        return new Refusal(code, "invalid batch at position " + position + ": " + what);
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
