package cleanerd.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.Map;

/** What {@code lstat} says about a file; a symbolic link is never followed. */
record FileFacts(long size, long inode, long modifiedMs, int links, int uid, boolean regular, boolean directory) {
    private static final String WANTED = "unix:size,ino,lastModifiedTime,nlink,uid,isRegularFile,isDirectory";

    static FileFacts of(Path path) throws IOException {
        Map<String, Object> values = Files.readAttributes(path, WANTED, LinkOption.NOFOLLOW_LINKS);
        return new FileFacts(
                (Long) values.get("size"),
                (Long) values.get("ino"),
                ((FileTime) values.get("lastModifiedTime")).toMillis(),
                (Integer) values.get("nlink"),
                (Integer) values.get("uid"),
                (Boolean) values.get("isRegularFile"),
                (Boolean) values.get("isDirectory"));
    }
}
