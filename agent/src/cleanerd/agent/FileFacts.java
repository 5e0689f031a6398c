package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.Map;
import java.util.Objects;

/** The result of {@code lstat}: a symbolic link is never followed. */
final class FileFacts {
    private static final String WANTED = "unix:size,ino,lastModifiedTime,nlink,uid,isRegularFile,isDirectory,ctime";

    private final long size;
    private final long inode;
    private final long modifiedMs;
    private final int links;
    private final int uid;
    private final boolean regular;
    private final boolean directory;
    private final FileTime changed;

    /**
     * @param changed when the file was last written to, renamed or given other attributes; no process can set it
     */
    FileFacts(long size, long inode, long modifiedMs, int links, int uid, boolean regular, boolean directory,
            FileTime changed) {
        this.size = size;
        this.inode = inode;
        this.modifiedMs = modifiedMs;
        this.links = links;
        this.uid = uid;
        this.regular = regular;
        this.directory = directory;
        this.changed = changed;
    }

    static FileFacts of(Path path) throws IOException {
        Map<String, Object> values = Files.readAttributes(path, WANTED, LinkOption.NOFOLLOW_LINKS);
        return new FileFacts(
                (Long) values.get("size"),
                (Long) values.get("ino"),
                ((FileTime) values.get("lastModifiedTime")).toMillis(),
                (Integer) values.get("nlink"),
                (Integer) values.get("uid"),
                (Boolean) values.get("isRegularFile"),
                (Boolean) values.get("isDirectory"),
                (FileTime) values.get("ctime"));
    }

    /** These facts after the file was renamed. */
    FileFacts renamed(FileFacts after) {
        return new FileFacts(size, inode, modifiedMs, links, uid, regular, directory, after.changed);
    }

    long size() {
        return size;
    }

    long inode() {
        return inode;
    }

    long modifiedMs() {
        return modifiedMs;
    }

    int links() {
        return links;
    }

    int uid() {
        return uid;
    }

    boolean regular() {
        return regular;
    }

    boolean directory() {
        return directory;
    }

    FileTime changed() {
        return changed;
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof FileFacts)) {
            return false;
        }
        FileFacts facts = (FileFacts) other;
        return size == facts.size && inode == facts.inode && modifiedMs == facts.modifiedMs && links == facts.links
                && uid == facts.uid && regular == facts.regular && directory == facts.directory
                && changed.equals(facts.changed);
    }

    @Override
    public int hashCode() {
        return Objects.hash(size, inode, modifiedMs, links, uid, regular, directory, changed);
    }
}
