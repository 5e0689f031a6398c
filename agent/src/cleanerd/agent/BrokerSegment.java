package cleanerd.agent;

import java.io.File;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;

/** One segment object of the broker. */
final class BrokerSegment {
    final Object segment;
    private final Members members;

    BrokerSegment(Members members, Object segment) {
        this.members = members;
        this.segment = segment;
    }

    long base() throws IOException {
        return (Long) Reflect.call(members.base, segment);
    }

    int size() throws IOException {
        return (Integer) Reflect.call(members.size, segment);
    }

    Path file() throws IOException {
        return ((File) Reflect.call(members.fileOfRecords, Reflect.call(members.records, segment))).toPath();
    }

    /** Flushes all files to the disk and maps both indexes, so that nothing opens them by name later. */
    void flush() throws IOException {
        Reflect.call(members.flush, segment);
    }

    void setLastModified(long timeMs) throws IOException {
        Reflect.call(members.setLastModified, segment, timeMs);
    }

    void deleteIfExists() throws IOException {
        Reflect.call(members.deleteIfExists, segment);
    }

    /** The facts that identify the present content. */
    SegmentFacts facts() throws IOException {
        FileFacts file = fileFacts();
        return facts(size(), file);
    }

    /** The facts of an active segment when it had {@code sizeBytes}. */
    SegmentFacts facts(int sizeBytes) throws IOException {
        return facts(sizeBytes, fileFacts());
    }

    private SegmentFacts facts(int sizeBytes, FileFacts file) throws IOException {
        return new SegmentFacts(base(), sizeBytes, file.inode(), file.modifiedMs());
    }

    /** The broker's object may already have the final name while the file is still a {@code .swap} (U-34). */
    private FileFacts fileFacts() throws IOException {
        Path path = file();
        try {
            return FileFacts.of(path);
        } catch (NoSuchFileException e) {
            try {
                return FileFacts.of(path.resolveSibling(path.getFileName() + CleanedFiles.SWAP));
            } catch (NoSuchFileException neither) {
                return FileFacts.of(path);
            }
        }
    }
}
