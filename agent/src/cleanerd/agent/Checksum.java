package cleanerd.agent;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32C;

/** CRC-32C of a file and of its batches, in one pass. */
final class Checksum implements Closeable {
    private static final int BUFFER_BYTES = 128 * 1024;

    private final FileChannel channel;
    private final ByteBuffer buffer;
    private final CRC32C file = new CRC32C();
    private long read;

    Checksum(Path path) throws IOException {
        channel = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
        // A small buffer for a small file, as there are thousands of them.
        buffer = ByteBuffer.allocate((int) Math.min(BUFFER_BYTES, Math.max(channel.size(), 1)));
        buffer.limit(0);
    }

    static int of(Path path) throws IOException {
        try (Checksum sum = new Checksum(path)) {
            sum.pass(sum.channel.size(), new CRC32C());
            return sum.ofFile();
        }
    }

    /** Call it for the batches in file order, for each one. */
    int ofBatch(Frame frame) throws IOException {
        pass(Frame.CHECKED_FROM, new CRC32C());
        CRC32C sum = new CRC32C();
        pass(frame.bytes() - Frame.CHECKED_FROM, sum);
        return (int) sum.getValue();
    }

    /** CRC-32C of all bytes that were read. */
    int ofFile() {
        return (int) file.getValue();
    }

    private void pass(long bytes, CRC32C sum) throws IOException {
        long left = bytes;
        while (left > 0) {
            if (!buffer.hasRemaining()) {
                buffer.clear();
                int count = channel.read(buffer, read);
                buffer.flip();
                if (count <= 0) {
                    throw new EOFException("the staged file became shorter while it was read");
                }
                read += count;
            }
            int part = (int) Math.min(left, buffer.remaining());
            sum.update(buffer.array(), buffer.position(), part);
            file.update(buffer.array(), buffer.position(), part);
            buffer.position(buffer.position() + part);
            left -= part;
        }
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
