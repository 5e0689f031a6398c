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

/** CRC-32C of a file and of each batch in it, in one walk from the beginning. */
final class Checksum implements Closeable {
    private final FileChannel channel;
    private final ByteBuffer buffer = ByteBuffer.allocate(128 * 1024);
    private final CRC32C file = new CRC32C();
    private long read;

    Checksum(Path path) throws IOException {
        channel = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
        buffer.limit(0);
    }

    static int of(Path path) throws IOException {
        try (Checksum sum = new Checksum(path)) {
            sum.pass(sum.channel.size(), new CRC32C());
            return sum.ofFile();
        }
    }

    /** The batches must be given one after the other. */
    int ofBatch(Frame frame) throws IOException {
        pass(Frame.CHECKED_FROM, new CRC32C());
        CRC32C sum = new CRC32C();
        pass(frame.bytes() - Frame.CHECKED_FROM, sum);
        return (int) sum.getValue();
    }

    /** Of all bytes so far. */
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
                    throw new EOFException("the staged file became shorter");
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
