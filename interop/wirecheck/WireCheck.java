import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Parses frames with Kafka's generated classes, writes them again and says whether the bytes are the same.
 * In:  kind (0 request, 1 response), key, version, length, frame (header and body, without its length).
 * Out: verdict (0 same, 1 different, 2 this release does not know key or version), length, explanation.
 */
public class WireCheck {
    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        for (int kind = in.read(); kind >= 0; kind = in.read()) {
            short key = in.readShort();
            short version = in.readShort();
            byte[] frame = new byte[in.readInt()];
            in.readFully(frame);
            int verdict = 0;
            String text = "";
            if (!known(key, version)) {
                verdict = 2;
            } else {
                try {
                    byte[] again = rewrite(kind == 0, ApiMessageType.fromApiKey(key), version, frame);
                    if (!Arrays.equals(frame, again)) {
                        verdict = 1;
                        text = "written again: " + hex(again);
                    }
                } catch (RuntimeException e) {
                    verdict = 1;
                    text = e.toString();
                }
            }
            byte[] explanation = text.getBytes(StandardCharsets.UTF_8);
            out.writeByte(verdict);
            out.writeInt(explanation.length);
            out.write(explanation);
        }
        out.flush();
    }

    private static boolean known(short key, short version) {
        for (ApiMessageType t : ApiMessageType.values()) {
            if (t.apiKey() == key) {
                return version >= t.lowestSupportedVersion() && version <= t.highestSupportedVersion(true);
            }
        }
        return false;
    }

    private static byte[] rewrite(boolean request, ApiMessageType type, short version, byte[] frame) {
        ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(frame));
        short headerVersion = request ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
        Message header = request ? new RequestHeaderData() : new ResponseHeaderData();
        header.read(in, headerVersion);
        ApiMessage body = request ? type.newRequest() : type.newResponse();
        body.read(in, version);
        if (in.remaining() > 0) {
            throw new IllegalStateException(in.remaining() + " bytes are left after " + body);
        }
        ObjectSerializationCache headerCache = new ObjectSerializationCache();
        ObjectSerializationCache bodyCache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(header.size(headerCache, headerVersion) + body.size(bodyCache, version));
        header.write(new ByteBufferAccessor(out), headerCache, headerVersion);
        body.write(new ByteBufferAccessor(out), bodyCache, version);
        return out.array();
    }

    private static String hex(byte[] bytes) {
        StringBuilder s = new StringBuilder();
        for (byte b : bytes) {
            s.append(String.format("%02x", b));
        }
        return s.toString();
    }
}
