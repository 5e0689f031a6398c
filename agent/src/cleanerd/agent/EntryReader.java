package cleanerd.agent;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Reads the entries of an index file with a small buffer. It ignores a partial entry at the end. */
final class EntryReader implements Closeable {
    private static final int ENTRIES_AT_ONCE = 512;

    private final FileChannel channel;
    private final int entryBytes;
    private final ByteBuffer buffer;
    private long position;

    EntryReader(Path path, int entryBytes) throws IOException {
        this.channel = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
        this.entryBytes = entryBytes;
        this.buffer = ByteBuffer.allocate(entryBytes * ENTRIES_AT_ONCE);
        this.buffer.limit(0);
    }

    long size() throws IOException {
        return channel.size();
    }

    /** Reads the next entry; false if there is none. */
    boolean next() throws IOException {
        if (buffer.remaining() >= 2 * entryBytes) {
            buffer.position(buffer.position() + entryBytes);
            return true;
        }
        buffer.clear();
        while (buffer.hasRemaining()) {
            int count = channel.read(buffer, position + buffer.position());
            if (count <= 0) {
                break;
            }
        }
        buffer.flip();
        buffer.limit(buffer.limit() / entryBytes * entryBytes);
        position += buffer.limit();
        return buffer.hasRemaining();
    }

    long longAt(int offset) {
        return buffer.getLong(buffer.position() + offset);
    }

    int intAt(int offset) {
        return buffer.getInt(buffer.position() + offset);
    }

    int shortAt(int offset) {
        return buffer.getShort(buffer.position() + offset);
    }

    /** A copy of the entry. */
    ByteBuffer copy() {
        byte[] bytes = new byte[entryBytes];
        buffer.duplicate().get(bytes);
        return ByteBuffer.wrap(bytes);
    }

    @Override
    public void close() throws IOException {
        channel.close();
    }
}
